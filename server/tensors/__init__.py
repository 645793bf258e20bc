"""TensorProto messages: parsing to arrays, and serialising from arrays."""
