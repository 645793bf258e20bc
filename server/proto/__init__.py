"""Protobuf messages that the Python package of TensorFlow Serving does not have.

`make protos` compiles the .proto files in this directory.
"""
