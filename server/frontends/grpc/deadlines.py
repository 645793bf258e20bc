"""Finds out how long the client of a gRPC call waits for the answer."""

import math

import grpc

# A call with more time left than this counts as a call without a deadline, because grpcio reports a
# deadline in the far future if the client has set none.
_NO_DEADLINE_SECONDS = 10 * 365 * 24 * 3600


def remaining_seconds(context: grpc.ServicerContext) -> float | None:
    """Return the seconds until the deadline of a call, 0 or less after it; None for no deadline."""
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE_SECONDS else remaining


def queue_timeout_seconds(context: grpc.ServicerContext, default_ms: float | None) -> float:
    """Return how long a call may wait in the queue of its model, in seconds.

    Only a call without a deadline has this limit. gRPC itself ends the other calls when their
    deadline passes.

    Args:
      context: the context of the call.
      default_ms: the time limit of calls without a deadline, in milliseconds; None for no limit.

    Returns:
      The time limit of the call; infinite for a call with a deadline, and for no limit.
    """
    if default_ms is None or remaining_seconds(context) is not None:
        return math.inf
    return default_ms / 1000
