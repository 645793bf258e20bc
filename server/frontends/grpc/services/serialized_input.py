"""Reads the examples of Classify, Regress and MultiInference requests without parsing them.

The messages are those of server/proto/serialized_input.proto.
"""

from server.proto.serialized_input_pb2 import Input


def read_examples(proto: Input) -> list[bytes]:
    """Return the serialised tf.train.Examples of an Input message.

    For an ExampleListWithContext, the bytes of the context precede the bytes of each example. A
    protobuf parser merges concatenated messages, so that a feature of the example replaces a
    feature of the same name in the context.
    """
    if proto.WhichOneof("kind") == "example_list":
        return list(proto.example_list.examples)
    with_context = proto.example_list_with_context
    return [with_context.context + example for example in with_context.examples]
