"""What becomes of each name that a program uses."""
