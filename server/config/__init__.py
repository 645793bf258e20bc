"""The configuration files of a server, read into frozen data."""
