"""Contains the protobuf messages of TensorFlow and TensorFlow Serving that tpuserve reads.

With these modules, tpuserve parses the messages without importing TensorFlow. `make protos`
generates the Python modules from the .proto files. A test compares their field numbers and types
with those of TensorFlow.
"""
