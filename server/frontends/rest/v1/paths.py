"""Parses URL paths below /v1/ with the rules of TensorFlow Serving.

The path is matched as the client sent it, including the query string. Only then are names in it
percent-decoded. Source: http_rest_api_handler.cc and http_rest_api_util.cc in
tensorflow_serving/model_servers.
"""

import re
from urllib.parse import unquote_to_bytes

from server.frontends.rest.dispatch.path_cache import cache_short_paths
from server.frontends.rest.dispatch.router import Route
from tpuserve.errors import InvalidInput

_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))
_VERSION = r"(?:/(?i:versions)/([0-9]+)|/(?i:labels)/([^/:]+))?"
# The patterns of paths for POST and GET requests. The operation, such as "predict", must be in
# lower case. The other fixed parts of a path may be in upper or lower case.
_POST = re.compile(rf"(?i:/v1/models)/([^/:]+){_VERSION}:(classify|regress|predict)")
_GET = re.compile(rf"(?i:/v1/models)(?:/([^/:]+))?{_VERSION}(/metadata|/statistics)?")
_NOTHING = re.compile(r"(?!)()()()()")


@cache_short_paths
def parse_path(method: str, path: str) -> Route:
    """Parse a path below /v1/.

    Returns:
      The endpoint. Its operation is "predict", "classify", "regress", "metadata", "statistics" or
      "status".

    Raises:
      InvalidInput: The API has no such path, or the version exceeds 64 bits.
    """
    match = {"POST": _POST, "GET": _GET}.get(method, _NOTHING).fullmatch(path)
    if match is None:
        raise InvalidInput(f"Malformed request: {method} {path}")
    name, digits, label, operation = match.groups()
    return Route(
        model=_percent_decode(name or ""),
        version=_parse_version(digits) if digits else None,
        label=_percent_decode(label) if label else None,
        operation=(operation or "/status").lstrip("/"),
        runs_model=method == "POST",
        template=_template(name, digits, label, operation, method),
    )


def _template(
    name: str | None, digits: str | None, label: str | None, operation: str | None, method: str
) -> str:
    """Return the path with placeholders such as {model} in place of names and versions."""
    model = "/{model}" if name else ""
    version = "/versions/{version}" if digits else "/labels/{label}" if label else ""
    verb = f":{operation}" if method == "POST" else operation or ""
    return f"/v1/models{model}{version}{verb}"


def _percent_decode(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode(errors="replace")


def _parse_version(digits: str) -> int:
    # Remove leading zeros before the conversion: `int` refuses texts of more than 4300 digits.
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS or int(significant) > _MAX_VERSION:
        raise InvalidInput(f"Failed to convert version: {digits} to numeric.")
    return int(significant)
