"""Applies the parameter `timeout` of infer requests."""

import time

from tpuserve.errors import DeadlineExceeded


def limit_remaining_ms(
    remaining_ms: float | None, timeout_us: int | None, received_ns: int
) -> float | None:
    """Return the time that is left for the answer to an infer request.

    Args:
      remaining_ms: the milliseconds that are left by the limits of the server and of the call; None
        for no limit.
      timeout_us: the parameter `timeout` of the request, in microseconds; None or 0 for no limit.
      received_ns: when the whole request had arrived, in nanoseconds of `time.perf_counter_ns`. The
        parameter counts from this time.

    Returns:
      The milliseconds; None for no limit.

    Raises:
      DeadlineExceeded: the time of the parameter has passed.
    """
    if not timeout_us:
        return remaining_ms
    elapsed_ms = (time.perf_counter_ns() - received_ns) / 1e6
    parameter_ms = timeout_us / 1000 - elapsed_ms
    if parameter_ms <= 0:
        raise DeadlineExceeded(
            f"the parameter timeout is {timeout_us} microseconds, and {elapsed_ms:.0f} ms had "
            f"passed before the model could run. Send a longer timeout, or send the request again "
            f"later."
        )
    return parameter_ms if remaining_ms is None else min(remaining_ms, parameter_ms)
