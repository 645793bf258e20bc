"""Reads the requests to the REST APIs, and runs the APIs' handlers in the right thread."""
