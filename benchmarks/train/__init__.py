"""Training here against training with the original."""
