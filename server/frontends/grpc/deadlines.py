"""Finds out how long the client of a gRPC call waits for the answer."""

import grpc

# A call with more time left than this counts as a call without a deadline, because grpcio reports a
# deadline in the far future if the client has set none.
_NO_DEADLINE_SECONDS = 10 * 365 * 24 * 3600


def remaining_seconds(context: grpc.ServicerContext) -> float | None:
    """Return the seconds until the deadline of a call, 0 or less after it; None for no deadline."""
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE_SECONDS else remaining
