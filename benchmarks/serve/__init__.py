"""Measures of the server against bare servers of the same kind."""
