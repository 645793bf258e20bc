"""Finds the model versions to serve, from the configuration and storage, and loads them."""
