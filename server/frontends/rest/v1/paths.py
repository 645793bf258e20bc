"""Paths as TensorFlow Serving reads them: matched as they are sent, decoded afterwards.

The query string is part of the path. Source: tensorflow_serving/model_servers/
http_rest_api_handler.cc, http_rest_api_util.cc.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from tpuserve.errors import InvalidInput

_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))
_VERSION = r"(?:/(?i:versions)/([0-9]+)|/(?i:labels)/([^/:]+))?"
# Verbs count in lower case alone, everything else in any.
_POST = re.compile(rf"(?i:/v1/models)/([^/:]+){_VERSION}:(classify|regress|predict)")
_GET = re.compile(rf"(?i:/v1/models)(?:/([^/:]+))?{_VERSION}(/metadata)?")


@dataclass(frozen=True)
class Route:
    """What a path below /v1/ names.

    Attributes:
      model: empty where the path names none.
      verb: "predict", "classify", "regress", "metadata"; "status" for what has no verb.
    """

    model: str
    version: int | None
    label: str | None
    verb: str


def is_api(path: str) -> bool:
    """Whether a path belongs to the API at all."""
    return path[:4].lower() == "/v1/"


@lru_cache(maxsize=1024)
def route(method: str, path: str) -> Route:
    """What a path below /v1/ names.

    Args:
      path: undecoded, with its query string.

    Raises:
      InvalidInput: no path of the API, or a version beyond 64 bits.
    """
    found = {"POST": _POST, "GET": _GET}.get(method, _NOTHING).fullmatch(path)
    if found is None:
        raise InvalidInput(f"Malformed request: {method} {path}")
    name, digits, label, verb = found.groups()
    return Route(
        _decoded(name or ""),
        _parse_version(digits) if digits else None,
        _decoded(label) if label else None,
        (verb or "/status").lstrip("/"),
    )


_NOTHING = re.compile(r"(?!)()()()()")


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode(errors="replace")


def _parse_version(digits: str) -> int:
    if len(digits.lstrip("0")) > _MAX_DIGITS or int(digits) > _MAX_VERSION:
        raise InvalidInput(f"Failed to convert version: {digits} to numeric.")
    return int(digits)
