"""The messages of small configuration files accept the text that TensorFlow Serving accepts."""

from google.protobuf import text_format

from server.config import messages


def test_wrapped_and_plain_fields_are_read() -> None:
    message = messages.new_message("BatchingParameters")
    text_format.Parse("max_batch_size { value: 128 } allowed_batch_sizes: [1, 128]", message)
    assert message.max_batch_size.value == 128
    assert list(message.allowed_batch_sizes) == [1, 128]
    assert not message.HasField("batch_timeout_micros")


def test_messages_have_their_own_names() -> None:
    names = {
        messages.new_message(name).DESCRIPTOR.full_name
        for name in ("SSLConfig", "MonitoringConfig")
    }
    assert names == {"tensorflow.serving.SSLConfig", "tensorflow.serving.MonitoringConfig"}
