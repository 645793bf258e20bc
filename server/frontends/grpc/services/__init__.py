"""The gRPC services of TensorFlow Serving, a file each."""
