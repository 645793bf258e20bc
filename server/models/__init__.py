"""Determines and loads the versions to serve: configuration, file system, life cycle."""
