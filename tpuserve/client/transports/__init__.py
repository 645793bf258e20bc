"""Sends encoded requests to a server over HTTP and gRPC, and returns the replies."""
