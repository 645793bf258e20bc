"""The APIs that the clients speak, over REST and over gRPC."""
