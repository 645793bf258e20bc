"""Memory of large requests returns to the system when no large request has ended for 10 s."""

import math
import threading

from server.admission.memory_budget import MemoryBudget
from server.process.heap_trimmer import HeapTrimmer, UnloadTrimmer


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


def test_first_unload_is_collected_at_once_and_the_next_ones_together_10_s_later() -> None:
    seconds, collected = 100.0, threading.Semaphore(0)
    trims: list[float] = []
    trimmer = UnloadTrimmer(collected.release, lambda: trims.append(seconds), lambda: seconds)
    trimmer.note_unload()
    assert collected.acquire(timeout=30)
    trimmer.note_unload()
    trimmer.note_unload()
    assert trimmer.next_collection == 110.0
    assert not collected.acquire(blocking=False)
    assert trims == [100.0] * 3
    trimmer.close()
