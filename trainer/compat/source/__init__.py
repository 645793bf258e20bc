"""Reads the source of a user's program, without running it, to find the symbols that it uses."""
