"""Results that a thread need not wait for."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Result = TypeVar("Result", covariant=True)


class Completion(Protocol):
    """Work that goes on after the call that started it has returned, such as a batch's run."""

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function exactly once, in any thread, when the work ends; at once if it has ended.

        The function must not block and must not raise: it delays all other requests of the batch.
        """


class Pending(Generic[Result]):
    """A result that can be computed once a completion has ended.

    Each layer of the server wraps the Pending of the layer below in a Pending of its own, whose
    `finish` calls the lower `finish` and then works on the result.
    """

    __slots__ = ("_completion", "finish")

    def __init__(self, completion: Completion, finish: Callable[[], Result]) -> None:
        """Create a pending result.

        Args:
          completion: the work that the result waits for.
          finish: computes the result, or raises the request's error. Must be called exactly once,
            and returns without waiting once the completion has ended.
        """
        self._completion = completion
        self.finish = finish

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function as soon as `finish` need not wait; see `Completion.add_done_callback`."""
        self._completion.add_done_callback(callback)

    def then(self, finish: Callable[[], "NewResult"]) -> "Pending[NewResult]":
        """Return a Pending whose result is that of `finish`, called after the same completion."""
        return Pending(self._completion, finish)


NewResult = TypeVar("NewResult")


def transform(
    result: Result | Pending[Result], function: Callable[[Result], NewResult]
) -> NewResult | Pending[NewResult]:
    """Apply a function to a result; return a Pending of the value if the result is pending."""
    if not isinstance(result, Pending):
        return function(result)
    finish = result.finish
    return result.then(lambda: function(finish()))


def wait(result: Result | Pending[Result]) -> Result:
    """Return a result; wait for it if it is pending."""
    return result.finish() if isinstance(result, Pending) else result
