"""Computes how much of a request's time limit is left."""

import time

from tpuserve.errors import DeadlineExceeded

UNREAD_RESPONSE_SECONDS = 20.0
"""How long a client may read nothing of a response, over REST and gRPC, until it is given up."""


def remaining_ms(timeout_ms: float | None, started: float) -> float | None:
    """Return the milliseconds that a request may still take.

    Args:
      timeout_ms: the time limit of the request in milliseconds; None for no limit.
      started: when the time limit began, in seconds of `time.monotonic`.

    Returns:
      The milliseconds, more than 0; None for no limit.

    Raises:
      DeadlineExceeded: the time is over, so that nothing must run for the request.
    """
    if timeout_ms is None:
        return None
    left_ms = timeout_ms - (time.monotonic() - started) * 1000
    if left_ms <= 0:
        raise DeadlineExceeded(
            f"the time limit of {timeout_ms:g} ms has passed before the model could run. Allow "
            f"more time, or send the request again later."
        )
    return left_ms
