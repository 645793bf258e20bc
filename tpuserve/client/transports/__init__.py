"""Sends the calls of the clients over HTTP and gRPC."""
