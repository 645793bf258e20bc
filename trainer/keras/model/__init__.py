"""Access to a Keras model: its adapter, variables, names, unsupported options, and tracing."""
