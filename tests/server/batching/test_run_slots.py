"""A request that waits for a slot leaves when its client has left."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from server.admission.cancellation import Cancellation
from server.batching.runner import RunSlots
from tests.server import contexts
from tpuserve.errors import Cancelled


class WatchedCancellation(Cancellation):
    """Says when somebody waits for the cancellation."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = threading.Event()

    def add_callback(self, callback: object) -> None:
        super().add_callback(callback)  # type: ignore[arg-type]
        self.is_awaited.set()


def occupy(slots: RunSlots, cancellation: Cancellation) -> str:
    with slots.occupy(contexts.make_context(cancellation=cancellation)):
        return "ran"


def test_cancelled_request_leaves_its_wait_before_a_slot_is_free() -> None:
    slots, cancellation = RunSlots(1), WatchedCancellation()
    with ThreadPoolExecutor() as pool, slots.occupy(contexts.make_context()):
        waiting = pool.submit(occupy, slots, cancellation)
        assert cancellation.is_awaited.wait(30)
        cancellation.cancel()
        with pytest.raises(Cancelled):
            waiting.result(30)


def test_slot_goes_to_a_request_that_still_waits() -> None:
    slots, cancelled, waiting = RunSlots(1), WatchedCancellation(), WatchedCancellation()
    with ThreadPoolExecutor() as pool:
        with slots.occupy(contexts.make_context()):
            first = pool.submit(occupy, slots, cancelled)
            assert cancelled.is_awaited.wait(30)
            second = pool.submit(occupy, slots, waiting)
            assert waiting.is_awaited.wait(30)
            cancelled.cancel()
        assert isinstance(first.exception(30), Cancelled)
        assert second.result(30) == "ran"
    assert occupy(slots, Cancellation()) == "ran"
