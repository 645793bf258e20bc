"""Reads the source of a program without running it."""
