"""Validates numbers that users pass as arguments, such as batch sizes, steps and seconds."""

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType, TpuserveError


def check_integer(
    name: str,
    value: Any,
    *,
    least: int | None = None,
    optional: bool = False,
    error: type[TpuserveError] = InvalidSetting,
) -> None:
    """Check that a value is a whole number, and not less than a minimum.

    Args:
      name: the name of the setting in error messages.
      value: the value from the user; NumPy integers count as whole numbers, booleans do not.
      least: the minimum; None allows every whole number.
      optional: whether None is valid.
      error: the class of the error about a value that is less than the minimum.

    Raises:
      InvalidType: the value is not a whole number.
      InvalidSetting: the value is less than the minimum, unless `error` is another class.
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
        raise error(message)


def round_up_steps(name: str, value: Any, *, least: int = 1) -> Any:
    """Round a number, such as one of steps, up to a whole number, and check its minimum.

    Users often compute a number of steps by a division, which gives a float.

    Args:
      name: the name of the setting in error messages.
      value: the value from the user; None is valid.
      least: the minimum.

    Returns:
      The whole number, or None.

    Raises:
      InvalidType: the value is not a finite number.
      InvalidSetting: the value is less than the minimum.
    """
    is_fraction = isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
    if is_fraction and math.isfinite(value):
        # Round a negative number down, so that -0.5 does not become a valid 0.
        value = math.ceil(value) if value > 0 else math.floor(value)
    check_integer(name, value, least=least, optional=True)
    return value


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    optional: bool = False,
) -> None:
    """Check that a value is a number within bounds; fractions are valid, NaN is not.

    Args:
      name: the name of the setting in error messages.
      value: the value from the user; NumPy numbers are valid, booleans are not.
      least: the minimum, which is valid. For this and the other bounds, None means no bound.
      above: a lower bound that is not valid itself.
      most: the maximum, which is valid.
      below: an upper bound that is not valid itself.
      optional: whether None is valid.

    Raises:
      InvalidType: the value is no number.
      InvalidSetting: the value is NaN, or not within the bounds.
    """
    if value is None and optional:
        return
    limits: tuple[tuple[str, Any, float | None], ...] = (
        ("at least", operator.ge, least),
        ("more than", operator.gt, above),
        ("at most", operator.le, most),
        ("less than", operator.lt, below),
    )
    bounds = [bound for bound in limits if bound[2] is not None]
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_within = is_number and all(compare(value, limit) for _, compare, limit in bounds)
    if is_within and not math.isnan(value):
        return
    condition = " and ".join(f"{words} {limit:g}" for words, _, limit in bounds)
    raise (InvalidSetting if is_number else InvalidType)(
        f"{name} is {value!r}. Give a number{' that is ' if bounds else ''}{condition}"
        f"{', or None' if optional else ''}."
    )


def check_sizes(name: str, sizes: Any, *, optional: bool = False) -> None:
    """Check that a value is a list of sizes, which are whole numbers of at least 1.

    Args:
      name: the name of the setting in error messages.
      sizes: the value from the user.
      optional: whether None is valid.

    Raises:
      InvalidType: the value is no list of whole numbers.
      InvalidSetting: a size is less than 1.
    """
    if sizes is None and optional:
        return
    if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes):
        raise InvalidType(
            f"{name} is {sizes!r}. Give a list of whole numbers{', or None' if optional else ''}."
        )
    for size in sizes:
        check_integer(f"A size of {name}", size, least=1)
