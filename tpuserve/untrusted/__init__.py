"""Checks of models that are not trusted: which ops they hold, files they read, bytes they ask for.

The checks read protobuf messages. They run before the load, because a load runs ops of the model.
"""
