"""Floats have six, nine or seventeen digits, whether formatted as an array or one by one."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.codec import array_to_json

# Draw the same numbers in each run, and accept any duration on a slow machine.
drawing_settings = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def format_by_the_rule(number: float, kind: Any) -> str:
    text = f"{number:.6g}"
    with np.errstate(over="ignore"):
        if kind(float(text)) != kind(number):
            text = f"{number:.{9 if kind is np.float32 else 17}g}"
    text = text.replace("nan", "NaN").replace("inf", "Infinity")
    return text if any(character in text for character in ".eIN") else text + ".0"


def encode(numbers: list[float], kind: Any) -> list[str]:
    return array_to_json.encode_floats(np.array(numbers, kind)).decode()[1:-1].split(", ")


@pytest.mark.parametrize(
    ("number", "single", "double"),
    [
        (9e6, "9e+06", "9e+06"),
        (999999.0, "999999.0", "999999.0"),
        (1000000.0, "1e+06", "1e+06"),
        (3e-5, "3e-05", "3e-05"),
        (1e-4, "0.0001", "0.0001"),
        (555557.5, "555557.5", "555557.5"),
        (0.1234567, "0.123456702", "0.1234567"),
        (2**-13, "0.000122070312", "0.0001220703125"),
        (123456789.0, "123456792.0", "123456789.0"),
        (9.9999996, "10.0", "9.9999996000000007"),
        (-0.0, "-0.0", "-0.0"),
        (math.inf, "Infinity", "Infinity"),
        (1e-45, "1.4013e-45", "1e-45"),
        (1 / 3, "0.333333343", "0.33333333333333331"),
    ],
)
def test_numbers_worked_by_hand(number: float, single: str, double: str) -> None:
    assert encode([number], np.float64) == [double]
    assert encode([number, 0.5], np.float32) == [single, "0.5"]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_random_numbers_are_written_format_by_the_rule(kind: Any) -> None:
    generator = np.random.default_rng(7)
    size = 10_000
    mixed = np.concatenate(
        [
            generator.normal(size=size),
            generator.uniform(-1e-6, 1e-3, size),
            10.0 ** generator.uniform(-12, 12, size),
            generator.integers(-(10**9), 10**9, size) / 10.0 ** generator.integers(0, 9, size),
            2.0 ** generator.integers(-149, 127, size) * generator.integers(1, 99, size),
        ]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        array = mixed.astype(kind)
    encoded = array_to_json.encode_floats(array).decode()[1:-1].split(", ")
    assert encoded == [format_by_the_rule(number, kind) for number in array.tolist()]


@drawing_settings
@given(st.lists(st.floats(width=32), min_size=1))
def test_any_float_is_written_format_by_the_rule(numbers: list[float]) -> None:
    assert encode(numbers, np.float32) == [
        format_by_the_rule(number, np.float32) for number in numbers
    ]


@drawing_settings
@given(st.lists(st.floats(), min_size=1))
def test_any_double_is_written_format_by_the_rule(numbers: list[float]) -> None:
    assert encode(numbers, np.float64) == [
        format_by_the_rule(number, np.float64) for number in numbers
    ]


@drawing_settings
@given(st.lists(st.floats(width=32), min_size=1))
def test_few_floats_are_written_format_by_the_rule(numbers: list[float]) -> None:
    expected = [format_by_the_rule(number, np.float32) for number in numbers]
    assert array_to_json.format_elements(np.array(numbers, np.float32)) == expected


@drawing_settings
@given(st.lists(st.decimals(-(10**7), 10**7, places=5).map(float), min_size=1))
def test_few_short_doubles_are_written_format_by_the_rule(numbers: list[float]) -> None:
    expected = [format_by_the_rule(number, np.float64) for number in numbers]
    assert array_to_json.format_elements(np.array(numbers)) == expected


def test_few_floats_may_be_in_any_layout() -> None:
    array = np.array([[1, 2.5], [1e-5, 10]], np.float32)
    assert array_to_json.format_elements(array.T) == ["1.0", "1e-05", "2.5", "10.0"]
    assert array_to_json.format_elements(array[::2, ::-1]) == ["2.5", "1.0"]
    assert array_to_json.format_elements(np.array(2.5)) == ["2.5"]
