"""Which versions of which models are loaded: configuration, file system, life cycle."""
