"""What the Open Inference Protocol tells of the server and of its models, over REST and gRPC."""
