"""The factory chooses the polling pool where grpcio supports one and the caller allows one."""

import pytest

from server.frontends.grpc.executor import grpcio_compat
from server.frontends.grpc.executor.cq_thread_pool import CompletionQueueThreadPool
from server.frontends.grpc.executor.factory import DefaultThreadPool, create_call_executor


def test_installed_grpcio_gets_the_polling_pool(caplog: pytest.LogCaptureFixture) -> None:
    executor = create_call_executor(1)
    executor.shutdown()
    assert isinstance(executor, CompletionQueueThreadPool)
    assert not caplog.records


def test_caller_can_ask_for_the_public_api(caplog: pytest.LogCaptureFixture) -> None:
    executor = create_call_executor(1, allow_direct_polling=False)
    executor.shutdown()
    assert isinstance(executor, DefaultThreadPool)
    assert not caplog.records


def test_unknown_grpcio_gets_the_public_api_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(grpcio_compat, "supports_direct_polling", lambda: False)
    executor = create_call_executor(1)
    executor.shutdown()
    assert isinstance(executor, DefaultThreadPool)
    assert "Install grpcio 1.72.1 to 1.85 for full speed." in caplog.text
