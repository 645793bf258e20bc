"""The requests of a server together stay within the memory budget."""

import pytest

from server.admission.memory_budget import MemoryBudget
from tpuserve.errors import Code, InvalidSetting, MemoryBudgetExceeded, RequestTooLarge


def test_requests_together_stay_within_the_budget() -> None:
    budget = MemoryBudget(100)
    first = budget.reserve(60)
    second = budget.reserve()
    with pytest.raises(MemoryBudgetExceeded, match="more than 100 bytes") as caught:
        second.grow(41)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert (second.num_bytes, budget.reserved_bytes) == (0, 60)
    second.grow(40)
    first.shrink(10)
    second.grow(10)
    assert budget.reserved_bytes == 100


def test_request_beyond_the_whole_budget_is_too_large() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(RequestTooLarge, match="needs 101 bytes of memory, more than the 100"):
        budget.reserve(101)
    reservation = budget.reserve(60)
    with pytest.raises(RequestTooLarge):
        reservation.grow(41)
    assert budget.reserved_bytes == 60


def test_reservation_can_be_resized() -> None:
    budget = MemoryBudget(100)
    reservation = budget.reserve(60)
    reservation.resize(20)
    assert (reservation.num_bytes, budget.reserved_bytes) == (20, 20)
    reservation.resize(100)
    assert budget.reserved_bytes == 100
    with pytest.raises(RequestTooLarge):
        reservation.resize(101)


def test_released_memory_can_be_reserved_again() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(RuntimeError), budget.reserve(100):
        raise RuntimeError
    assert budget.reserved_bytes == 0
    reservation = budget.reserve(100)
    reservation.release()
    reservation.release()
    assert budget.reserved_bytes == 0


@pytest.mark.parametrize("size", [0, -1])
def test_budget_without_memory_is_refused(size: int) -> None:
    with pytest.raises(InvalidSetting, match=f"--max_request_memory_bytes is {size}"):
        MemoryBudget(size)
