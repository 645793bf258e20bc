"""The gRPC face: TensorFlow Serving's services. Its protos import TensorFlow."""
