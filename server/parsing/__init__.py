"""Parses JSON request bodies: small ones in the server's process, large ones in child processes."""
