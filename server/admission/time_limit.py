"""Computes how much of a request's time limit is left."""

import time

UNREAD_RESPONSE_SECONDS = 20.0
"""How long a client may read nothing of a response, over REST and gRPC, until it is given up."""


def remaining_ms(timeout_ms: float | None, started: float) -> float | None:
    """Return the milliseconds that a request may still take.

    Args:
      timeout_ms: the time limit of the request in milliseconds; None for no limit.
      started: when the time limit began, in seconds of `time.monotonic`.

    Returns:
      The milliseconds, at least 1; None for no limit.
    """
    if timeout_ms is None:
        return None
    return max(1, timeout_ms - (time.monotonic() - started) * 1000)
