"""Versions in remote storage: lists them, downloads them and keeps them in a cache directory."""
