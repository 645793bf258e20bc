"""Reads the requests to the REST APIs, and runs their handlers in the event loop or in threads."""
