"""Reads the files of an old program, finds its flags, and builds the command that runs it."""
