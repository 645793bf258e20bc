"""The gRPC services of the server, their base classes, and the list of all services."""
