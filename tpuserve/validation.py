"""Whole numbers that a user gives."""

from numbers import Integral
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType


def check_integer(name: str, value: Any, least: int) -> None:
    """Refuses what is no whole number, numpy's included, or less than the least.

    Raises:
      InvalidType: it is no whole number.
      InvalidSetting: it is less than the least. Both name it as `name` and show what it is.
    """
    message = f"{name} is {value!r}. Give a whole number of at least {least}."
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidType(message)
    if value < least:
        raise InvalidSetting(message)
