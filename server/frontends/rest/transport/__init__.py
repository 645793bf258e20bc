"""The HTTP server of the REST frontend: connections, request bodies, responses and TLS."""
