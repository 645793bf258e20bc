"""The "session" runtime, which runs a metagraph in a tf.compat.v1.Session."""
