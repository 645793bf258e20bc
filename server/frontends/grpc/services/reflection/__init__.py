"""gRPC server reflection: lists the services and describes their messages."""
