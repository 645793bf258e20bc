"""Reads the tf.train.Examples of Classify, Regress and MultiInference requests as bytes.

So that protobuf does not parse the examples, server/proto/serialized_input.proto declares
TensorFlow Serving's message Input again, with fields of type bytes in place of tf.train.Examples.
"""

from server.proto.serialized_input_pb2 import Input


def read_examples(proto: Input) -> list[bytes]:
    """Return the serialised tf.train.Examples of an Input message.

    If the message has an ExampleListWithContext, the bytes of the context are put before the bytes
    of each example.
    """
    if proto.WhichOneof("kind") == "example_list":
        return list(proto.example_list.examples)
    with_context = proto.example_list_with_context
    return [with_context.context + example for example in with_context.examples]
