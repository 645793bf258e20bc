"""Protocol buffer messages of TensorFlow and TensorFlow Serving, without TensorFlow.

`make protos` compiles the .proto files. The field numbers and types are those of TensorFlow; a
test compares them.
"""
