"""Checks of untrusted models: the ops that they hold, files that they open, memory that they need.

The checks read protobuf messages. They run before the load, because a load runs ops of the model.
"""
