"""How each TPU op is replaced."""
