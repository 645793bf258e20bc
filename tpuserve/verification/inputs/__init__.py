"""Collects the inputs for a verification: from a file, from warm-up records, or generated."""
