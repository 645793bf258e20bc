"""Numbers of bytes as text, such as "8GB"."""

import re

from tpuserve.errors import InvalidSetting

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= dict.fromkeys((_letter, f"{_letter}B"), 1000**_power)
    _UNITS |= dict.fromkeys((f"{_letter}I", f"{_letter}IB"), 1024**_power)
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(flag: str, text: str) -> int:
    """Parse a number of bytes, such as "8GB", "1.5GiB", "512MB" or "8000000000".

    Args:
      flag: the flag with this value, such as "--max_model_memory", for the text of an error.
    """
    match = _SIZE.fullmatch(text)
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None:
        raise InvalidSetting(
            f"{flag} is {text!r}. Give a number of bytes, with a unit if you like: 8GB, 512MB, "
            f"1.5GiB or 8000000000."
        )
    return int(float(match[1]) * unit)


def format_bytes(num_bytes: int) -> str:
    """Format a number of bytes for people: "1.2 GB"."""
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.3g} {letter}B"
    return f"{num_bytes} B"
