"""The messages between a frontend process and the engine process: their kinds and values."""

import builtins
import io
import pickle
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from tpuserve import errors
from tpuserve.errors import TpuserveError

# The kinds of messages from a frontend process to the engine process.
SIGNATURE = 1
"""Find a signature: model, version, label, signature name. Answered by its parts."""
PREDICT = 2
"""Run a model on arrays."""
INFER = 3
"""Call a method of the data plane that runs a model: name, pickled arguments."""
METHOD = 4
"""Call a method of the data plane that runs no model: name, pickled arguments."""
CANCEL = 5
"""Cancel the call with the number of this message. Not answered itself."""

# The kinds of messages from the engine process to a frontend process. Each message, except one of
# the kind STATE, contains the number of a call, and is the answer to this call.
RESULT = 10
ERROR = 11
"""The call has failed: the pickled error."""
OTHER_SIGNATURE = 12
"""The model has another signature than the one by which the arrays of the call were read."""
STATE = 13
"""The state of a version has changed: whether any model is available now."""


class EngineFault(Exception):
    """Raised for a call that has failed in the engine process with an unexpected exception.

    The text of this exception is the traceback from the engine process.
    """


def pack_error(error: BaseException, trace: str) -> bytes:
    """Return an error of a call in a form that a message can hold.

    Args:
      error: the exception that the call has raised.
      trace: the traceback of the error, which is sent only for an unexpected exception.
    """
    if isinstance(error, TpuserveError):
        return pickle.dumps((type(error).__name__, error.args))
    if isinstance(error, MemoryError):
        return pickle.dumps((MemoryError.__name__, ()))
    return pickle.dumps((EngineFault.__name__, (f"in the engine process:\n{trace}",)))


def unpack_error(packed: bytes) -> BaseException:
    """Return the error that `pack_error` has packed in the other process.

    An unexpected exception is returned as an `EngineFault`. Any other exception is returned as a
    new exception of its own class.
    """
    name, arguments = pickle.loads(packed)
    if name == EngineFault.__name__:
        return EngineFault(*arguments)
    error_type: Any = getattr(errors, name, None) or getattr(builtins, name)
    error: BaseException = error_type(*arguments)
    return error


def pack(value: Any) -> bytes:
    """Return any picklable value in a form that a message can hold."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def unpack(packed: bytes) -> Any:
    """Return the value that `pack` has packed in the other process."""
    return pickle.loads(packed)


class _Pickler(pickle.Pickler):
    """Pickles a protobuf message as the name of its type and its serialised bytes.

    The generated Python classes of messages may differ between processes.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Message):
            return _parse_message, (obj.DESCRIPTOR.full_name, obj.SerializeToString())
        return NotImplemented


def _parse_message(name: str, serialized: bytes) -> Message:
    from tensorflow.core.protobuf import meta_graph_pb2  # noqa: F401

    descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    return message_factory.GetMessageClass(descriptor).FromString(serialized)
