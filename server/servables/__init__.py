"""Loaded versions of models, and the loaders of each format."""
