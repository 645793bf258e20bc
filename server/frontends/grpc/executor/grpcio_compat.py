"""Tests whether the installed grpcio has the private API that the executors need.

`CompletionQueueThreadPool` and `NonBlockingStreamWriter` use the private API. Without it, the
server uses `DefaultThreadPool`.
"""

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

# The functions and classes that the executors use from the private module grpc._server: name →
# names of the parameters.
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
_SERVER_MODULE_NAMES = (
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
_CALL_STATE_NAMES = (
    "request",
    "due",
    "context",
    "condition",
    "callbacks",
    "initial_metadata_allowed",
    "aborted",
)
_CONTEXT_NAMES = ("_state", "_rpc_event")
_SERVER_STATE_NAMES = (
    "lock",
    "server.start",
    "stage",
    "due",
    "completion_queue.poll",
    "server_deallocated",
    "rpc_states",
)
_MESSAGE = b"a message"


def supports_direct_polling() -> bool:
    """Return whether `CompletionQueueThreadPool` works with the installed grpcio.

    The function checks the names, parameters and behavior of the private API that this class uses.
    """
    if not _has_names(_server, (*_SERVER_MODULE_NAMES, *_FUNCTIONS)):
        return False
    if not _has_names(cygrpc, _CYTHON_NAMES):
        return False
    for name, parameters in _FUNCTIONS.items():
        if tuple(inspect.signature(getattr(_server, name)).parameters) != parameters:
            return False
    try:
        return (
            _submits_expected_arguments()
            and _stores_message_in_state()
            and _has_names(_server._Context(None, None, None), _CONTEXT_NAMES)
            and _has_names(grpc.server(SimpleNamespace())._state, _SERVER_STATE_NAMES)
        )
    except Exception:
        # Any exception means that the internals of the installed grpcio differ from those that the
        # executors need.
        return False


def _has_names(owner: Any, dotted_names: Iterable[str]) -> bool:
    try:
        for dotted_name in dotted_names:
            attrgetter(dotted_name)(owner)
    except AttributeError:
        return False
    return True


def _stores_message_in_state() -> bool:
    state = _server._RPCState()
    state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
    operation = SimpleNamespace(message=lambda: _MESSAGE)
    on_received = _server._receive_message(state, None, None)
    finished = on_received(SimpleNamespace(batch_operations=[operation]))
    return bool(state.request == _MESSAGE and not state.due and finished == (None, ()))


def _submits_expected_arguments() -> bool:
    """Return whether grpcio passes the expected arguments to the executor's method `submit`."""
    submitted: list[Any] = []

    def behavior() -> None:
        pass

    def submit(*args: Any) -> None:
        submitted.extend(args)

    event, state = SimpleNamespace(call=object()), _server._RPCState()
    if not _has_names(state, _CALL_STATE_NAMES):
        return False
    method = grpc.stream_unary_rpc_method_handler(behavior)
    _server._handle_stream_unary(event, state, method, SimpleNamespace(submit=submit))
    run, target, *others = submitted
    expected = run == state.context.run and target is _server._unary_response_in_pool
    return expected and others[:3] == [event, state, behavior] and others[4:] == [None, None]
