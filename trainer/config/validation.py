"""Numbers that a user gives: steps, rows, iterations, seconds."""

import math
import numbers
import operator
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType


def check(name: str, value: Any, *, least: int | None = None, optional: bool = True) -> None:
    """Refuses what is no whole number, or less than the least; None passes where it may.

    Args:
      name: what the number is called where the user gave it.
      value: what the user gave.
      least: the least that is allowed; None allows every whole number.
      optional: whether None passes.

    Raises:
      InvalidType: it is no whole number.
      InvalidSetting: it is less than the least. Both name the setting and show what it is.
    """
    if value is None and optional:
        return
    wanted = "a whole number" + ("" if least is None else f" of at least {least}")
    message = f"{name} is {value!r}. Give {wanted}{', or None' if optional else ''}."
    try:
        # Takes numpy's integers as well; True is an int only by an accident of history.
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidType(f"{message[:-1]}; it must be int.")
    if least is not None and number < least:
        raise InvalidSetting(message)


def whole_steps(name: str, value: Any) -> Any:
    """A number of steps; the next whole one of a float, as a division gives.

    Raises:
      InvalidType, InvalidSetting: as `check` does, where it is no number, or not above 0.
    """
    if isinstance(value, float) and math.isfinite(value):
        value = math.ceil(value)
    check(name, value, least=1)
    return value


def check_duration(
    name: str, value: Any, *, zero: bool = True, unit: str = "seconds", optional: bool = True
) -> None:
    """Refuses what is no number, whole or not, or negative; None passes where it may.

    Args:
      name: what the duration is called where the user gave it.
      value: what the user gave.
      zero: whether 0 passes.
      unit: what it counts.
      optional: whether None passes.

    Raises:
      InvalidType: it is no number.
      InvalidSetting: it is negative, zero where it may not be, or no number by its value.
    """
    if value is None and optional:
        return
    bound = "at least 0" if zero else "more than 0"
    message = f"{name} is {value!r}. Give {bound} {unit}{', or None' if optional else ''}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidType(message)
    number = float(value)
    # Written so that a NaN, which compares false to everything, is refused.
    if not (number >= 0 if zero else number > 0):
        raise InvalidSetting(message)
