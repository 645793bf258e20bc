"""The gRPC frontend: TensorFlow Serving's services, health checks and reflection.

The modules import TensorFlow, because TensorFlow Serving's generated protos do.
"""
