"""Serves SavedModels to TensorFlow Serving clients, through a REST and a gRPC frontend."""
