"""Numbers from users: whole numbers, steps, fractions and sizes."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tpuserve import validation
from tpuserve.errors import InvalidConfig, InvalidSetting, InvalidType


@pytest.mark.parametrize("value", [1, np.int64(2)])
def test_whole_numbers_from_the_minimum_are_accepted(value: Any) -> None:
    validation.check_integer("runs", value, least=1)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, InvalidSetting),
        (1.5, InvalidType),
        (True, InvalidType),
        ("1", InvalidType),
        (None, InvalidType),
    ],
)
def test_other_values_are_refused_with_the_name_and_the_value(
    value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"runs is {value!r}. Give a whole number of at least 1"):
        validation.check_integer("runs", value, least=1)


def test_error_about_a_type_says_which_type_is_expected() -> None:
    with pytest.raises(InvalidType) as error:
        validation.check_integer("seed", 0.5, optional=True)
    assert str(error.value) == "seed is 0.5. Give a whole number, or None; it must be int."


def test_none_is_accepted_where_the_number_is_optional() -> None:
    validation.check_integer("runs", None, least=1, optional=True)
    validation.check_number("delay", None, least=0, optional=True)
    assert validation.round_up_steps("steps", None) is None


def test_number_below_the_minimum_is_an_error_of_the_class_of_the_caller() -> None:
    with pytest.raises(InvalidConfig, match="runs is 0"):
        validation.check_integer("runs", 0, least=1, error=InvalidConfig)


def test_without_a_minimum_negative_numbers_are_accepted() -> None:
    validation.check_integer("seed", -3)


@pytest.mark.parametrize(
    ("value", "steps"),
    [(3, 3), (2.1, 3), (2.0, 2), (np.float64(0.2), 1), (np.float32(2.5), 3), (Fraction(7, 2), 4)],
)
def test_steps_are_rounded_up(value: Any, steps: int) -> None:
    assert validation.round_up_steps("steps", value) == steps


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, InvalidSetting), (-0.5, InvalidSetting), (float("inf"), InvalidType), ("3", InvalidType)],
)
def test_steps_must_be_positive_and_finite(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Give a whole number of at least 1, or None"):
        validation.round_up_steps("steps", value)


@pytest.mark.parametrize("value", [0, 0.5, np.float32(3), float("inf")])
def test_numbers_from_the_minimum_are_accepted(value: Any) -> None:
    validation.check_number("delay", value, least=0)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, InvalidSetting),
        (float("nan"), InvalidSetting),
        (True, InvalidType),
        ("1", InvalidType),
        (None, InvalidType),
    ],
)
def test_other_numbers_are_refused_with_the_bound(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        validation.check_number("delay", value, least=0)
    assert str(raised.value) == f"delay is {value!r}. Give a number that is at least 0."


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (0, {"above": 0}, "a number that is more than 0."),
        (1.0, {"least": 0, "below": 1}, "a number that is at least 0 and less than 1."),
        (0.5, {"most": 0}, "a number that is at most 0."),
        (
            float("inf"),
            {"below": 2.5, "optional": True},
            "a number that is less than 2.5, or None.",
        ),
        (float("nan"), {}, "a number."),
    ],
)
def test_number_outside_of_a_bound_is_refused(
    value: float, bounds: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidSetting) as raised:
        validation.check_number("rate", value, **bounds)
    assert str(raised.value) == f"rate is {value!r}. Give {text}"


@pytest.mark.parametrize("sizes", [[1, np.int64(8)], (4,), [], None])
def test_lists_of_sizes_are_accepted(sizes: Any) -> None:
    validation.check_sizes("batch_sizes", sizes, optional=True)


@pytest.mark.parametrize(
    ("sizes", "error", "text"),
    [
        ("12", InvalidType, "batch_sizes is '12'. Give a list of whole numbers."),
        ({1}, InvalidType, "batch_sizes is {1}. Give a list of whole numbers."),
        (None, InvalidType, "batch_sizes is None. Give a list of whole numbers."),
        ([1, 0], InvalidSetting, "A size of batch_sizes is 0. Give a whole number of at least 1."),
    ],
)
def test_other_sizes_are_refused(sizes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        validation.check_sizes("batch_sizes", sizes)
    assert str(raised.value) == text
