"""A server of several processes: a supervisor, an engine that runs the models, and frontends."""
