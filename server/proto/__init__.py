"""Configuration messages of TensorFlow Serving, compiled by `make protos`."""
