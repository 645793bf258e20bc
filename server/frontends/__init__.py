"""The protocols that clients speak, and what starts them."""
