"""Writes the files of an export: the version directory and what is in it."""
