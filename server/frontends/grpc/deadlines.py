"""Finds out how long the client of a gRPC call waits for the answer."""

import math
import time

import grpc

# A call with more time left than this counts as a call without a deadline, because grpcio reports a
# deadline in the far future if the client has set none.
_NO_DEADLINE_SECONDS = 10 * 365 * 24 * 3600


def remaining_seconds(context: grpc.ServicerContext) -> float | None:
    """Return the seconds until the deadline of a call, 0 or less after it; None for no deadline."""
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE_SECONDS else remaining


def find_deadline(
    context: grpc.ServicerContext, default_ms: float | None, received_ns: int
) -> float:
    """Return the deadline of a call, in seconds of `time.monotonic`; infinite for none.

    Args:
      default_ms: the time limit of calls without a deadline, in milliseconds; None for no limit.
      received_ns: when the message arrived, in nanoseconds of `time.perf_counter_ns`.
    """
    remaining = remaining_seconds(context)
    if remaining is None:
        if default_ms is None:
            return math.inf
        remaining = default_ms / 1e3 - (time.perf_counter_ns() - received_ns) / 1e9
    return time.monotonic() + remaining
