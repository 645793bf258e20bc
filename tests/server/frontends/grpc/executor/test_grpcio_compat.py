"""`supports_direct_polling` accepts the installed grpcio, and rejects one with other internals."""

from types import SimpleNamespace
from typing import Any

import pytest
from grpc import _server

from server.frontends.grpc.executor import grpcio_compat


def test_installed_grpcio_is_supported() -> None:
    assert grpcio_compat.supports_direct_polling()


def submit_other_arguments(
    rpc_event: Any, state: Any, method_handler: Any, default_thread_pool: Any
) -> Any:
    return default_thread_pool.submit(state.context.run, rpc_event, state, method_handler)


def store_message_elsewhere(state: Any, call: Any, request_deserializer: Any) -> Any:
    return lambda event: state.messages.append(event.batch_operations[0].message())


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("_handle_stream_unary", submit_other_arguments),
        ("_handle_stream_unary", lambda event: None),
        ("_RPCState", SimpleNamespace),
        ("_ServerStage", SimpleNamespace(RUNNING="started")),
        ("_receive_message", store_message_elsewhere),
        ("_ServerState", lambda *parts: SimpleNamespace(queue=parts[0])),
    ],
)
def test_grpcio_with_other_internals_is_not_supported(
    monkeypatch: pytest.MonkeyPatch, name: str, other: Any
) -> None:
    monkeypatch.setattr(_server, name, other)
    assert not grpcio_compat.supports_direct_polling()


def test_grpcio_without_a_used_function_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_server, "_request_call")
    assert not grpcio_compat.supports_direct_polling()
