"""Runs several requests together in one batch, as TensorFlow Serving does.

Used only if the server is started with the flag --enable_batching.
"""
