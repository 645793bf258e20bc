"""Applies the parameter `timeout` of infer requests."""

import time

from server.request import RequestContext


def limit_time(context: RequestContext, timeout_us: int | None) -> RequestContext:
    """Return the context of an infer request with the time limit that the request sets itself.

    Args:
      timeout_us: the parameter `timeout` of the request, in microseconds from its arrival; None or
        0 for no limit.
    """
    if not timeout_us:
        return context
    elapsed_seconds = (time.perf_counter_ns() - context.timeline.queued_ns) / 1e9
    limited = context.limited_to(time.monotonic() + timeout_us / 1e6 - elapsed_seconds)
    limited.check()
    return limited
