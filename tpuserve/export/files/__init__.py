"""Writes the version directory of an export and the files in it."""
