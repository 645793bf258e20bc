"""Writes the files of a version directory."""
