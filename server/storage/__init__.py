"""Lists model versions in remote storage, downloads them, and keeps them in a cache directory."""
