"""The gRPC frontend: TensorFlow Serving's services, health checks and reflection.

The modules of this package import TensorFlow, because the generated Python modules of TensorFlow
Serving's protos do.
"""
