"""Runs a metagraph in a tf.compat.v1.Session: the "session" runtime."""
