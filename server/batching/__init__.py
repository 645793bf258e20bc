"""Requests run together: batches of TensorFlow Serving's kind.

Where batching is not configured nothing of this is on a request's path.
"""
