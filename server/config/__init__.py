"""The configuration files of a server, and the immutable objects that hold their contents."""
