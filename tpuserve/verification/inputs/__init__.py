"""Inputs that a verification runs signatures on: from a file, from warm-up records, or generated."""
