"""Retries calls that a server cannot answer at the moment, until the deadline of the call."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tpuserve import validation
from tpuserve.errors import DeadlineExceeded, LimitReached, TpuserveError, Unavailable

if TYPE_CHECKING:
    from tpuserve.client.call import Call, Reply

# 2e6 seconds are 23 days. Sockets and gRPC take no infinite time limit: the time limit of a socket
# can end at once from 2**32 ms (4.3e6 s), and that of a gRPC call ends at once from about 9e9 s.
LONGEST_TIMEOUT_SECONDS = 2e6
"""A longer time limit of a call counts as this one."""

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 5.0


class Deadline:
    """The time at which a call with all of its attempts has to end.

    Attributes:
      timeout_s: the length of the whole time limit in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        validation.check_number("timeout_s", timeout_s, above=0)
        self.timeout_s = timeout_s
        self._end = time.monotonic() + min(timeout_s, LONGEST_TIMEOUT_SECONDS)

    def remaining_s(self) -> float:
        """Return the time until the deadline in seconds."""
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
    """Retry a call whose first attempt has failed, with random waits between the attempts.

    Args:
      attempts: the largest number of attempts, including the first.
    """
    from tenacity import Retrying

    errors = [first_error]

    def attempt() -> "Reply":
        if errors:
            raise errors.pop()
        return send(call, deadline)

    try:
        return Retrying(**_settings(attempts, deadline))(attempt)
    except DeadlineExceeded as error:
        raise _add_first_error(error, first_error) from first_error


async def repeat_async(
    send: "Callable[[Call, Deadline], Awaitable[Reply]]",
    call: "Call",
    deadline: Deadline,
    attempts: int,
    first_error: TpuserveError,
) -> "Reply":
    """Retry a call as `repeat` does, with a coroutine function as the argument `send`."""
    from tenacity import AsyncRetrying

    errors = [first_error]

    async def attempt() -> "Reply":
        if errors:
            raise errors.pop()
        return await send(call, deadline)

    try:
        return await AsyncRetrying(**_settings(attempts, deadline))(attempt)
    except DeadlineExceeded as error:
        raise _add_first_error(error, first_error) from first_error


def is_temporary(error: BaseException) -> bool:
    """Return whether a call that failed with an error can succeed if it is sent again later."""
    return isinstance(error, Unavailable | LimitReached) and error.retry_after_s is not None


def _add_first_error(error: DeadlineExceeded, first_error: TpuserveError) -> DeadlineExceeded:
    """Return an error that also tells why the call was sent again."""
    text = str(error).rstrip(".")
    return DeadlineExceeded(f"{text}. The first attempt failed: {first_error}")


def _settings(attempts: int, deadline: Deadline) -> dict[str, Any]:
    import tenacity

    # Wait for a random time before each retry. With equal waits, clients whose calls failed at the
    # same time would also retry at the same time, and overload the server again.
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
