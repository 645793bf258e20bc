"""The part of TensorFlow's SavedModel format that is read here without TensorFlow.

`saved_model.proto` is the source; `make protos` compiles it. Field numbers and types are
TensorFlow's, which a test compares.
"""
