"""A cancelled run stops before its deadline; simultaneous and later runs continue."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests import looping_model
from tpuserve.errors import Cancelled, InvalidTensor
from tpuserve.runtime import loader
from tpuserve.runtime.session import run_canceller

ENDLESS, SHORT = np.array(1e30, np.float32), np.array(3, np.float32)
X = np.array([0], np.float32)


class Token:
    """A CancellationToken, as the server passes it for a request."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []
        self._is_cancelled = False
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def raise_if_cancelled(self) -> None:
        if self._is_cancelled:
            raise Cancelled("on purpose")

    def add_callback(self, callback: Callable[[], object]) -> None:
        with self._lock:
            self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


@pytest.fixture(scope="module", params=[True, False])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("model") / "1"
    looping_model.export(directory, request.param)
    model = loader.load(directory)
    yield model
    model.close()


def run_model(model: Any, n: Any, token: Token | None = None, *outputs: str) -> dict[str, Any]:
    return dict(model.run("serving_default", {"x": X, "n": n}, outputs or None, cancellation=token))


def num_steps(model: Any) -> int:
    return int(model.run("steps", {"x": X})["steps"])


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def begin(model: Any, pool: ThreadPoolExecutor, token: Token, *outputs: str) -> Future[Any]:
    """Begin an endless run, and wait until its loop runs."""
    before = num_steps(model)
    endless = pool.submit(run_model, model, ENDLESS, token, *outputs)
    wait_until(lambda: num_steps(model) > before)
    return endless


@pytest.mark.parametrize("outputs", [(), ("y",)])
def test_endless_run_ends_when_it_is_cancelled(
    model: Any, pool: ThreadPoolExecutor, outputs: tuple[str, ...]
) -> None:
    token = Token()
    endless = begin(model, pool, token, *outputs)
    token.cancel()
    with pytest.raises(Cancelled, match="on purpose"):
        endless.result(30)
    steps = num_steps(model)
    assert [num_steps(model) for _ in range(100)] == [steps] * 100


def test_runs_beside_and_after_a_cancelled_one_are_answered(
    model: Any, pool: ThreadPoolExecutor
) -> None:
    for _ in range(3 * run_canceller._SLOTS):
        token = Token()
        assert run_model(model, SHORT, token) == {"y": 3, "more": 0}
        token.cancel()
    first, second = Token(), Token()
    endless = begin(model, pool, first)
    other = begin(model, pool, second)
    first.cancel()
    with pytest.raises(Cancelled):
        endless.result(30)
    assert run_model(model, SHORT, Token()) == {"y": 3, "more": 0}
    assert not other.done()
    second.cancel()
    with pytest.raises(Cancelled):
        other.result(30)
    assert run_model(model, SHORT, Token(), "more") == {"more": 0}


def test_cancellation_just_after_a_run_leaves_nothing_to_the_next(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cancellable = model._canceller.run

    def cancel_after_run(run_session: Any, tensors: Any, token: Token) -> Any:
        def run_and_cancel(feeds: Any, targets: Any) -> Any:
            results = run_session(feeds, targets)
            token.cancel()
            return results

        return run_cancellable(run_and_cancel, tensors, token)

    monkeypatch.setattr(model._canceller, "run", cancel_after_run)
    for _ in range(2 * run_canceller._SLOTS):
        assert run_model(model, SHORT, Token()) == {"y": 3, "more": 0}


def test_failed_run_leaves_nothing_to_the_next(model: Any) -> None:
    for _ in range(run_canceller._SLOTS):
        with pytest.raises(InvalidTensor):
            model.run(
                "serving_default", {"x": X, "n": np.zeros([2], np.float32)}, cancellation=Token()
            )
    for _ in range(2 * run_canceller._SLOTS):
        assert run_model(model, SHORT, Token()) == {"y": 3, "more": 0}


def test_runs_beyond_the_slots_are_answered(model: Any, pool: ThreadPoolExecutor) -> None:
    canceller = model._canceller
    slots = list(canceller._free_slots)
    canceller._free_slots.clear()
    try:
        assert run_model(model, SHORT, Token()) == {"y": 3, "more": 0}
    finally:
        canceller._free_slots.extend(slots)
