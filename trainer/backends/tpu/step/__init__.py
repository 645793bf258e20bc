"""The replicated training step and its loop."""
