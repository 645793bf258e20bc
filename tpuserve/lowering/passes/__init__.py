"""Transformations of whole function bodies."""
