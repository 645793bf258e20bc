"""Pending results (futures), for which a thread need not wait."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from server.servables.output_size import MANY_VALUES

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

        Work that has failed has no values. `server.servables.output_size` counts the values.
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
