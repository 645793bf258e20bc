"""The closure of the largest weight equals the best of all possible choices."""

import itertools
import random

import pytest

from tpuserve.export.conversion.analysis.partition import find_largest_closure


def test_an_item_is_chosen_with_what_it_requires_if_both_together_gain() -> None:
    weights = {"a": 5, "b": -3, "c": -4, "d": 2}
    assert find_largest_closure(weights, [("a", "b"), ("d", "c")]) == {"a", "b"}


def test_items_that_share_a_requirement_pay_for_it_together() -> None:
    weights = {"a": 2, "b": 2, "shared": -3}
    chosen = find_largest_closure(weights, [("a", "shared"), ("b", "shared")])
    assert chosen == {"a", "b", "shared"}


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_has_a_larger_weight(seed: int) -> None:
    draw = random.Random(seed)
    items = range(8)
    weights = {item: draw.randint(-5, 5) for item in items}
    pairs = [(first, second) for first in items for second in items if draw.random() < 0.15]

    def weight(chosen: set[int]) -> int:
        return sum(weights[item] for item in chosen)

    closed = [
        weight(set(chosen))
        for size in range(9)
        for chosen in itertools.combinations(items, size)
        if all(second in chosen for first, second in pairs if first in chosen)
    ]
    chosen = find_largest_closure(weights, pairs)
    assert all(second in chosen for first, second in pairs if first in chosen)
    assert weight(chosen) == max(closed)
