"""Contexts of requests, and runs of requests with them."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from server.admission.cancellation import Cancellation
from server.request import CLOCK, RequestContext
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array, InferenceRunner


def make_context(
    timeout_ms: float | None = None, cancellation: Cancellation | None = None, **fields: Any
) -> RequestContext:
    """Return the context of a request that a frontend watches."""
    deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    context = RequestContext(deadline, cancellation or Cancellation(), **fields)
    CLOCK.watch(context)
    return context


def start(
    runner: InferenceRunner,
    name: str,
    inputs: Mapping[str, Array],
    output_names: Sequence[str] | None = None,
    **context: Any,
) -> Mapping[str, Array] | Pending[Mapping[str, Array]]:
    return runner.start(make_context(**context), name, inputs, output_names)


def run(
    runner: InferenceRunner,
    name: str,
    inputs: Mapping[str, Array],
    output_names: Sequence[str] | None = None,
    **context: Any,
) -> Mapping[str, Array]:
    return pending.wait(start(runner, name, inputs, output_names, **context))
