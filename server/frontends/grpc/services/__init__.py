"""The gRPC services, and the registry that lists them."""
