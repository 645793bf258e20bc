"""Validates numbers that users pass as arguments, such as batch sizes, steps and seconds."""

import math
import numbers
import operator
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType


def check_integer(
    name: str, value: Any, *, least: int | None = None, optional: bool = False
) -> None:
    """Check that a value is a whole number, and not less than a minimum.

    Args:
      name: the name of the setting in error messages.
      value: the value from the user; NumPy integers count as whole numbers, booleans do not.
      least: the minimum; None allows every whole number.
      optional: whether None is valid.

    Raises:
      InvalidType: the value is not a whole number.
      InvalidSetting: the value is less than the minimum.
    """
    if value is None and optional:
        return
    minimum = "" if least is None else f" of at least {least}"
    message = f"{name} is {value!r}. Give a whole number{minimum}{', or None' if optional else ''}."
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidType(f"{message[:-1]}; it must be int.")
    if least is not None and number < least:
        raise InvalidSetting(message)


def round_up_steps(name: str, value: Any) -> Any:
    """Round a number of steps up to a whole number, and check that it is positive.

    Users often compute a number of steps by a division, which gives a float.

    Args:
      name: the name of the setting in error messages.
      value: the value from the user; None is valid.

    Returns:
      The number of steps as an int, or None.

    Raises:
      InvalidType: the value is no number.
      InvalidSetting: the value is not positive.
    """
    if isinstance(value, float) and math.isfinite(value):
        value = math.ceil(value)
    check_integer(name, value, least=1, optional=True)
    return value


def check_duration(
    name: str, value: Any, *, zero: bool = True, unit: str = "seconds", optional: bool = False
) -> None:
    """Check that a duration is a number and not negative; fractions are valid.

    Args:
      name: the name of the setting in error messages.
      value: the value from the user, in `unit`.
      zero: whether 0 is valid.
      unit: the unit of the value in error messages.
      optional: whether None is valid.

    Raises:
      InvalidType: the value is no number.
      InvalidSetting: the value is negative, NaN, or 0 where 0 is not valid.
    """
    if value is None and optional:
        return
    bound = "at least 0" if zero else "more than 0"
    message = f"{name} is {value!r}. Give {bound} {unit}{', or None' if optional else ''}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidType(message)
    number = float(value)
    # Do not write the condition as `value < 0`: all comparisons with NaN are false, so that NaN
    # would be accepted.
    if not (number >= 0 if zero else number > 0):
        raise InvalidSetting(message)
