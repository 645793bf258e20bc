"""HTTP connections, request bodies, responses and TLS."""
