"""Whole numbers that a user gives: steps, rows, iterations."""

import operator
from typing import Any

from tpuserve.errors import InvalidSetting


def check(name: str, value: Any, *, least: int, optional: bool = True) -> None:
    """Refuses what is no whole number, or less than the least; None passes where it may.

    Raises:
      InvalidSetting: names the setting, and shows what it is.
    """
    if value is None and optional:
        return
    try:
        # Takes numpy's integers as well; True is an int only by an accident of history.
        is_whole = not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        is_whole = False
    if not is_whole:
        or_none = ", or None" if optional else ""
        raise InvalidSetting(
            f"{name} is {value!r}. Give a whole number of at least {least}{or_none}."
        )
