"""Reads the source of a program without running the program."""
