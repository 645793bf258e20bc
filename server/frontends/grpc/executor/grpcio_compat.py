"""What is used of grpcio beside its API, and whether it is there."""

import inspect
from collections.abc import Iterable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import grpc

try:
    from grpc import _server
    from grpc._cython import cygrpc
except ImportError:
    _server = cygrpc = None

# Functions, and the names of what they take.
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "_begin_shutdown_once": ("state",),
    "_process_event_and_continue": ("state", "event"),
    "_receive_message": ("state", "call", "request_deserializer"),
    "_request_call": ("state",),
    "_Context": ("rpc_event", "state", "request_deserializer"),
    "_get_initial_metadata_operation": ("state", "metadata"),
    "_is_rpc_state_active": ("state",),
    "_send_message": ("state", "token"),
    "_status": ("rpc_event", "state", "serialized_response"),
    "_handle_stream_unary": ("rpc_event", "state", "method_handler", "default_thread_pool"),
}
_NAMES = (
    "_RECEIVE_MESSAGE_TOKEN",
    "_SEND_MESSAGE_TOKEN",
    "_REQUEST_CALL_TAG",
    "_EMPTY_FLAGS",
    "_RPCState",
    "_ServerStage.STARTED",
)
_CYTHON_NAMES = (
    "CompletionType.queue_shutdown",
    "CompletionType.queue_timeout",
    "CompletionQueue.poll",
    "CompletionQueue.shutdown",
    "ReceiveMessageOperation",
    "SendMessageOperation",
)
_STATE_NAMES = ("request", "due", "context", "condition", "callbacks", "initial_metadata_allowed")
_CONTEXT_NAMES = ("_state", "_rpc_event")
# Of a server.
_SERVER_STATE_NAMES = (
    "lock",
    "server.start",
    "stage",
    "due",
    "completion_queue.poll",
    "server_deallocated",
)
_RECEIVED = b"a message"


def supports_direct_polling() -> bool:
    """Whether the grpcio that is installed is made as `CompletionQueueThreadPool` expects it."""
    if not _has(_server, (*_NAMES, *_FUNCTIONS)) or not _has(cygrpc, _CYTHON_NAMES):
        return False
    for name, parameters in _FUNCTIONS.items():
        if tuple(inspect.signature(getattr(_server, name)).parameters) != parameters:
            return False
    try:
        return (
            _submits_as_expected()
            and _receives_as_expected()
            and _has(_server._Context(None, None, None), _CONTEXT_NAMES)
            and _has(grpc.server(SimpleNamespace())._state, _SERVER_STATE_NAMES)
        )
    except Exception:
        # Whatever it is that is otherwise.
        return False


def _has(thing: Any, names: Iterable[str]) -> bool:
    try:
        for each in names:
            attrgetter(each)(thing)
    except AttributeError:
        return False
    return True


def _receives_as_expected() -> bool:
    """Whether a message that has come is left where `CompletionQueueThreadPool` looks for it."""
    state = _server._RPCState()
    state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
    operation = SimpleNamespace(message=lambda: _RECEIVED)
    told = _server._receive_message(state, None, None)(
        SimpleNamespace(batch_operations=[operation])
    )
    return bool(state.request == _RECEIVED and not state.due and told == (None, ()))


def _submits_as_expected() -> bool:
    """Whether grpcio submits a call with the arguments that `submit` expects."""
    submitted: list[Any] = []

    def behavior() -> None:
        pass

    def submit(*args: Any) -> None:
        submitted.extend(args)

    event, state = SimpleNamespace(call=object()), _server._RPCState()
    if not _has(state, _STATE_NAMES):
        return False
    method = grpc.stream_unary_rpc_method_handler(behavior)
    _server._handle_stream_unary(event, state, method, SimpleNamespace(submit=submit))
    run, target, *rest = submitted
    expected = run == state.context.run and target is _server._unary_response_in_pool
    return expected and rest[:3] == [event, state, behavior] and rest[4:] == [None, None]
