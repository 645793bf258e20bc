"""Memory of large requests returns to the system when no large request has ended for 10 s."""

import math
import threading

from server.admission.memory_budget import MemoryBudget
from server.process.heap_trimmer import HeapTrimmer


def test_heap_is_trimmed_once_after_the_last_large_request() -> None:
    trims, seconds = [], 0.0
    trimmer = HeapTrimmer(lambda: trims.append(seconds), lambda: seconds)
    trimmer.note_large_request()
    seconds = 4.0
    trimmer.note_large_request()
    seconds = 10.0
    assert trimmer.trim_if_idle() == 14.0
    seconds = 14.0
    assert trimmer.trim_if_idle() == math.inf
    assert trims == [14.0]


def test_thread_trims_by_itself() -> None:
    seconds, has_trimmed = 0.0, threading.Event()
    trimmer = HeapTrimmer(has_trimmed.set, lambda: seconds)
    trimmer.note_large_request()
    seconds = 10.0
    trimmer.start()
    assert has_trimmed.wait(30)
    trimmer.close()


def test_only_large_requests_are_noted() -> None:
    noted: list[int] = []
    budget = MemoryBudget(1 << 30, lambda: noted.append(budget.reserved_bytes))
    budget.reserve((1 << 20) - 1).release()
    assert noted == []
    large = budget.reserve(1 << 20)
    large.release()
    large.release()
    assert noted == [0]
