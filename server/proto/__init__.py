"""Messages that TensorFlow Serving's Python package leaves out, compiled by `make protos`."""
