"""The figures that the benchmarks compute from measurements; no test checks a speed."""

import pytest

from benchmarks.serve.turns import compare_in_turns
from benchmarks.train.ratios import Comparison, compute_ratio

FASTER = Comparison("steps_per_second", "original", "here", target=3, at_least=True)
ROUNDS = [
    {"original": {"steps_per_second": 10}, "here": {"steps_per_second": 20}},
    {"original": {"steps_per_second": 20}, "here": {"steps_per_second": 80}},
    {"original": {"steps_per_second": 40}, "here": {"steps_per_second": 60}},
]


def test_the_ratio_divides_medians_and_the_range_is_that_of_single_rounds() -> None:
    result = compute_ratio("softmax", FASTER, ROUNDS)
    assert result is not None
    assert (result.baseline, result.candidate, result.value) == (20, 60, 3)
    assert (result.lowest, result.highest) == (1.5, 4)


def test_a_round_without_one_of_the_sides_is_ignored() -> None:
    result = compute_ratio("softmax", FASTER, [*ROUNDS[:1], {"original": {"steps_per_second": 9}}])
    assert result is not None
    assert (result.baseline, result.value) == (10, 2)
    assert compute_ratio("softmax", FASTER, [{}]) is None


@pytest.mark.parametrize(("target", "at_least", "is_met"), [(3, True, True), (3.1, True, False)])
def test_a_minimum_is_met_at_the_target(target: float, at_least: bool, is_met: bool) -> None:
    comparison = Comparison("steps_per_second", "original", "here", target, at_least)
    result = compute_ratio("softmax", comparison, ROUNDS)
    assert result is not None
    assert result.is_met is is_met


def test_a_maximum_is_met_at_the_target() -> None:
    rounds = [{"CPU": {"ms_per_step": 4}, "emulated": {"ms_per_step": 5}}]
    for target, is_met in ((1.25, True), (1.2, False)):
        comparison = Comparison("ms_per_step", "CPU", "emulated", target, at_least=False)
        result = compute_ratio("emulated", comparison, rounds)
        assert result is not None
        assert result.is_met is is_met


def test_variants_are_measured_in_alternating_order() -> None:
    order = []

    def measure(variant: float) -> dict[str, float]:
        order.append(variant)
        return {"calls/s": variant * len(order)}

    (comparison,) = compare_in_turns(3, 1, measure, rounds=3).values()
    assert order == [3, 1, 1, 3, 3, 1]
    assert comparison.with_feature == [3, 12, 15]
    assert comparison.without_feature == [2, 3, 6]
    assert comparison.ratios == [1.5, 4, 2.5]
    assert comparison.median_ratio == 2.5
