"""Repeats calls that a server cannot answer at the moment, until a deadline."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tpuserve.errors import (
    DeadlineExceeded,
    InvalidSetting,
    LimitReached,
    TpuserveError,
    Unavailable,
)

if TYPE_CHECKING:
    from tpuserve.client.call import Call, Reply

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 5.0


class Deadline:
    """The end of the time that a call may take, with all of its attempts."""

    def __init__(self, timeout_s: float) -> None:
        """Start the time.

        Args:
          timeout_s: the time, in seconds.

        Raises:
          InvalidSetting: the time is not positive.
        """
        # Written so that NaN is refused too.
        if not timeout_s > 0:
            raise InvalidSetting(f"timeout_s is {timeout_s}. Give a number of seconds above 0.")
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def remaining_s(self) -> float:
        """Return the remaining time in seconds.

        Raises:
          DeadlineExceeded: no time remains.
        """
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise self.error()
        return remaining

    def error(self) -> DeadlineExceeded:
        """Create the error for a call that was not answered in time."""
        return DeadlineExceeded(
            f"the server has not answered within {self.timeout_s:g} s. Give a longer timeout_s, or "
            f"look at the load of the server."
        )


def repeat(
    send: "Callable[[Call, Deadline], Reply]",
    call: "Call",
    deadline: Deadline,
    attempts: int,
    first_error: TpuserveError,
) -> "Reply":
    """Send a call again whose first attempt has failed.

    Args:
      send: sends the call once.
      call: the call.
      deadline: the deadline of all attempts together.
      attempts: the number of attempts, with the first.
      first_error: the error of the first attempt.

    Raises:
      TpuserveError: the error of the last attempt.
    """
    from tenacity import Retrying

    errors = [first_error]

    def attempt() -> "Reply":
        if errors:
            raise errors.pop()
        return send(call, deadline)

    return Retrying(**_settings(attempts, deadline))(attempt)


async def repeat_async(
    send: "Callable[[Call, Deadline], Awaitable[Reply]]",
    call: "Call",
    deadline: Deadline,
    attempts: int,
    first_error: TpuserveError,
) -> "Reply":
    """Send a call again, on an event loop; arguments and errors are those of `repeat`."""
    from tenacity import AsyncRetrying

    errors = [first_error]

    async def attempt() -> "Reply":
        if errors:
            raise errors.pop()
        return await send(call, deadline)

    return await AsyncRetrying(**_settings(attempts, deadline))(attempt)


def is_temporary(error: BaseException) -> bool:
    """Return whether the same call may succeed later."""
    return isinstance(error, Unavailable | LimitReached) and error.retry_after_s is not None


def _settings(attempts: int, deadline: Deadline) -> dict[str, Any]:
    import tenacity

    # Random waits, so that the clients of a server that comes back do not all ask at once.
    backoff = tenacity.wait_random_exponential(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return max(backoff(state), getattr(error, "retry_after_s", None) or 0)

    return {
        "stop": tenacity.stop_after_attempt(attempts)
        | tenacity.stop_before_delay(deadline.remaining_s()),
        "wait": wait,
        "retry": tenacity.retry_if_exception(is_temporary),
        "reraise": True,
    }
