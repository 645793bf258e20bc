"""A server of several processes: a supervisor, an engine with the models, and frontends."""
