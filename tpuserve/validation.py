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
    """Check that a value is a whole number, and not less than a minimum."""
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
      value: the value from the user; None is valid.
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
      least: the minimum, which is valid. For this and the other bounds, None means no bound.
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
    """Check that a value is a list of sizes, which are whole numbers of at least 1."""
    if sizes is None and optional:
        return
    if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes):
        raise InvalidType(
            f"{name} is {sizes!r}. Give a list of whole numbers{', or None' if optional else ''}."
        )
    for size in sizes:
        check_integer(f"A size of {name}", size, least=1)
