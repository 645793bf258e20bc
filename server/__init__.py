"""Serves SavedModels to TensorFlow Serving clients: one data plane, a REST and a gRPC face."""
