"""The grpcio that is installed can be used the faster way; one of another make is told apart."""

from types import SimpleNamespace
from typing import Any

import pytest
from grpc import _server

from server.frontends.grpc.executor import grpcio_compat


def test_grpcio_is_made_as_expected() -> None:
    assert grpcio_compat.supports_direct_polling()


def submits_otherwise(
    rpc_event: Any, state: Any, method_handler: Any, default_thread_pool: Any
) -> Any:
    return default_thread_pool.submit(state.context.run, rpc_event, state, method_handler)


def keeps_elsewhere(state: Any, call: Any, request_deserializer: Any) -> Any:
    return lambda event: state.messages.append(event.batch_operations[0].message())


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("_handle_stream_unary", submits_otherwise),
        ("_handle_stream_unary", lambda event: None),
        ("_RPCState", SimpleNamespace),
        ("_ServerStage", SimpleNamespace(RUNNING="started")),
        ("_receive_message", keeps_elsewhere),
        ("_ServerState", lambda *parts: SimpleNamespace(queue=parts[0])),
    ],
)
def test_grpcio_of_another_make_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, name: str, other: Any
) -> None:
    monkeypatch.setattr(_server, name, other)
    assert not grpcio_compat.supports_direct_polling()


def test_grpcio_without_what_is_used_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_server, "_request_call")
    assert not grpcio_compat.supports_direct_polling()
