"""HTTP connections, request bodies, responses and worker threads."""
