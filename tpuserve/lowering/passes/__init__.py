"""Transformations of whole graphs and function bodies."""
