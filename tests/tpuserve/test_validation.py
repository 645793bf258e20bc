"""Numbers from users: whole numbers, steps and durations."""

from typing import Any

import numpy as np
import pytest

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType


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
    validation.check_duration("delay", None, optional=True)
    assert validation.round_up_steps("steps", None) is None


def test_without_a_minimum_negative_numbers_are_accepted() -> None:
    validation.check_integer("seed", -3)


@pytest.mark.parametrize(("value", "steps"), [(3, 3), (2.1, 3), (2.0, 2), (np.float64(0.2), 1)])
def test_steps_are_rounded_up(value: Any, steps: int) -> None:
    assert validation.round_up_steps("steps", value) == steps


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, InvalidSetting), (-0.5, InvalidSetting), (float("inf"), InvalidType), ("3", InvalidType)],
)
def test_steps_must_be_positive_and_finite(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Give a whole number of at least 1, or None"):
        validation.round_up_steps("steps", value)


@pytest.mark.parametrize("value", [0, 0.5, np.float32(3)])
def test_durations_from_zero_are_accepted(value: Any) -> None:
    validation.check_duration("delay", value)


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
def test_other_durations_are_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"delay is {value!r}. Give at least 0 seconds."):
        validation.check_duration("delay", value)


def test_zero_is_refused_where_a_duration_must_be_positive() -> None:
    with pytest.raises(InvalidSetting, match="every is 0. Give more than 0 minutes."):
        validation.check_duration("every", 0, zero=False, unit="minutes")
