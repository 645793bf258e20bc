"""Outputs are large if they take long to encode: many numbers, many strings or long strings."""

import numpy as np

from server.servables.pending import MANY_VALUES, count_strings, count_values


def strings(*values: bytes) -> np.ndarray:
    return np.array(values, object)


def test_numbers_count_whatever_their_type() -> None:
    assert count_values([np.zeros([2, 3]), np.zeros([4], np.int8), np.array(1, np.float32)]) == 11


def test_a_long_string_counts_as_several_values() -> None:
    assert count_values([strings(b"short", b"x" * 155)]) == 2 + 10
    assert count_values([strings()]) == 0


def test_the_lengths_of_many_strings_are_not_added() -> None:
    many = [b"x" * 160] * (MANY_VALUES + 1)
    assert count_strings(many) == MANY_VALUES + 1
    assert count_values([strings(*many)]) == MANY_VALUES + 1
