"""Parses TensorProto messages to NumPy arrays, and serialises arrays as TensorProtos."""
