"""Pending results (futures), for which a thread need not wait."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

MANY_VALUES = 1 << 13
"""The number of values from which outputs are large."""
BYTES_PER_VALUE = 16
"""The number of bytes of a string that take about as long to encode as a further value."""


def count_values(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """Return about how many values must be encoded: numbers, strings and parts of long strings.

    Args:
      arrays: the outputs, of any shape and dtype. Strings are object arrays of bytes.
    """
    return sum(
        count_strings(array.reshape(-1).tolist())
        if array.dtype.hasobject and array.size <= MANY_VALUES
        else array.size
        for array in arrays
    )


def count_strings(strings: Collection[bytes]) -> int:
    """Return about how many values must be encoded to encode some strings.

    The lengths of the strings are not added if the strings are many, because then the number of
    strings alone tells that the outputs are large.
    """
    if len(strings) > MANY_VALUES:
        return len(strings)
    return len(strings) + sum(map(len, strings)) // BYTES_PER_VALUE


Result = TypeVar("Result", covariant=True)


class Completion(Protocol):
    """Work that continues after the call that has started it, such as the run of a batch."""

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function once, in any thread, when the work ends; immediately if it has ended.

        The function must not block and must not raise an error: several requests can share one
        batch, and the other requests wait for the function.
        """

    def count_values(self) -> int:
        """Return about how many values the outputs of the work have, after the work has ended.

        Work that has failed has no values. `server.servables.pending` counts the values.
        """


class Pending(Generic[Result]):
    """A result (a future) that can be computed when some work, a `Completion`, has ended.

    Each layer of the server wraps the Pending of the layer below in a new Pending, whose `finish`
    calls the `finish` of the wrapped Pending, and then processes the result.

    Args:
      finish: computes the result, or raises the request's error. It must be called exactly
        once. It waits for the end of the work, unless the work has already ended.
    """

    __slots__ = ("_completion", "finish")

    def __init__(self, completion: Completion, finish: Callable[[], Result]) -> None:
        self._completion = completion
        self.finish = finish

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function, in any thread, as soon as `finish` can be called without a wait.

        The function must not block and must not raise an error.
        """
        self._completion.add_done_callback(callback)

    @property
    def is_large(self) -> bool:
        """Whether the result takes long to encode: long enough to delay other requests.

        It has a meaning only when `finish` can be called without a wait.
        """
        return self._completion.count_values() > MANY_VALUES

    def then(self, finish: Callable[[], "NewResult"]) -> "Pending[NewResult]":
        """Return a Pending that waits for the same work, and whose result `finish` computes."""
        return Pending(self._completion, finish)


NewResult = TypeVar("NewResult")


def transform(
    result: Result | Pending[Result], function: Callable[[Result], NewResult]
) -> NewResult | Pending[NewResult]:
    """Apply a function to a result.

    If the result is pending, return a Pending that applies the function later.
    """
    if not isinstance(result, Pending):
        return function(result)
    finish = result.finish
    return result.then(lambda: function(finish()))


def wait(result: Result | Pending[Result]) -> Result:
    """Return a result, after waiting for it if it is pending."""
    return result.finish() if isinstance(result, Pending) else result
