"""The thread pools that run the handlers of gRPC calls."""
