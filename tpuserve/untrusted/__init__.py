"""Checks untrusted models: which ops they have, which files they open, how much memory they need.

The checks only read protobuf messages. A server runs them before it loads a model, because loading
runs ops of the model, such as its initialisation op.
"""
