"""Runs several requests together in one batch, as TensorFlow Serving does.

Without the flag --enable_batching, only those run together that gain by it.
"""
