"""Divides the time of an analysis among its configurations."""

import time
from dataclasses import replace

from tpuserve.bench.windows import Procedure

START_SECONDS = 10
"""An estimate of the time in which a server starts, for the expected total."""

_MIN_WINDOW_SECONDS = 0.2


class TimeBudget:
    """Divides the time that is left equally among the configurations that are left.

    A configuration that needs less time than its share leaves more for the next ones.
    """

    def __init__(self, seconds: float, num_configurations: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._num_left = num_configurations
        self._share_end = self._deadline

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._deadline

    def begin_configuration(self) -> None:
        """Begin the share of the next configuration, which includes the start of its server."""
        now = time.monotonic()
        self._share_end = now + max(0.0, self._deadline - now) / max(1, self._num_left)
        self._num_left -= 1

    def skip_configuration(self) -> None:
        """Leave out a configuration, and divide its share among the remaining configurations."""
        self._num_left -= 1

    def shorten(self, procedure: Procedure, num_loads: int) -> Procedure:
        """Return a procedure whose windows are short enough for the share of a configuration.

        The share is the time for all loads of the configuration that was begun last.
        """
        available = (self._share_end - time.monotonic()) / num_loads
        smallest = _MIN_WINDOW_SECONDS / procedure.window_s
        factor = min(1.0, max(available / longest_seconds(procedure), smallest))
        return replace(
            procedure,
            window_s=procedure.window_s * factor,
            warm_up_s=procedure.warm_up_s * factor,
        )


def longest_seconds(procedure: Procedure) -> float:
    """Return the longest time that the measurement of one load may take, in seconds."""
    return procedure.warm_up_s + procedure.max_windows * procedure.window_s
