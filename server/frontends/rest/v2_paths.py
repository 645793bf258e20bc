"""Parses the URL paths of the Open Inference Protocol, and of Triton's extensions.

Source: the specification of the protocol ("HTTP/REST"), and Triton's extensions for model
configuration, statistics and the model repository.
"""

import re
from urllib.parse import parse_qs, unquote_to_bytes

from server.frontends.rest.dispatch.path_cache import cache_short_paths
from server.frontends.rest.dispatch.router import Route
from tpuserve.errors import InvalidInput, NotFound

LIVE, READY = "/v2/health/live", "/v2/health/ready"
"""The health checks, which the server answers even while it starts and stops."""

_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))
_MODEL = re.compile(
    r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|infer|config|stats))?", re.ASCII
)
_REPOSITORY_MODEL = re.compile(r"/v2/repository/models/([^/]+)/(load|unload)")
_SERVER = {
    ("GET", "/v2"): "server_metadata",
    ("GET", "/v2/models/stats"): "stats",
    ("POST", "/v2/repository/index"): "repository_index",
}
_METHODS = {None: "GET", "ready": "GET", "config": "GET", "stats": "GET", "infer": "POST"}
_MAX_SHOWN_CHARACTERS = 128


@cache_short_paths
def parse_path(method: str, path: str) -> Route:
    """Parse a path that begins with /v2.

    A query string of the form ?signature_name=NAME is read if the path asks for the metadata or the
    configuration of a model.

    Returns:
      The endpoint. Its operation is "infer", "ready", "metadata", "config", "stats",
      "server_metadata", "repository_index", "load" or "unload".

    Raises:
      InvalidInput: The path does not allow the HTTP method, the version is no number, or the query
        string names several signatures.
    """
    path, _, query = path.partition("?")
    path = path.rstrip("/") or path
    operation = _SERVER.get((method, path))
    if operation is not None:
        return Route(operation=operation, has_body=method == "POST", template=path)
    if any(path == known for _, known in _SERVER):
        raise _wrong_method(method, path)
    match = _REPOSITORY_MODEL.fullmatch(path)
    if match is not None:
        if method != "POST":
            raise _wrong_method(method, path)
        return Route(
            model=_percent_decode(match[1]),
            operation=match[2],
            has_body=True,
            changes_models=True,
            template=f"/v2/repository/models/{{model}}/{match[2]}",
        )
    match = _MODEL.fullmatch(path)
    if match is None:
        raise NotFound(
            f"the Open Inference Protocol has no path {path[:_MAX_SHOWN_CHARACTERS]!r}. Send "
            f"/v2/models/NAME/infer or another path of /openapi.json."
        )
    name, version, operation = match.groups()
    if method != _METHODS[operation]:
        raise _wrong_method(method, path)
    return Route(
        model=_percent_decode(name),
        version=None if version is None else parse_version(version),
        operation=operation or "metadata",
        runs_model=operation == "infer",
        describes_model=operation in (None, "config"),
        signature_name=_parse_query(query) if operation in (None, "config") else "",
        template="/v2/models/{model}"
        + ("" if version is None else "/versions/{version}")
        + (f"/{operation}" if operation else ""),
    )


def _parse_query(query: str) -> str:
    names = parse_qs(query).get("signature_name", [""])
    if len(names) > 1:
        raise InvalidInput(f"the query has {len(names)} parameters signature_name. Send one.")
    return names[0]


def parse_version(text: str) -> int:
    """Convert the model version in a path to a number.

    Raises:
      InvalidInput: The text is not a whole number from 0 to 2**63 - 1.
    """
    if not (text.isascii() and text.isdigit()):
        raise _invalid_version(text)
    # Remove leading zeros before the conversion: `int` refuses texts of more than 4300 digits.
    digits = text.lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS or int(digits) > _MAX_VERSION:
        raise _invalid_version(text)
    return int(digits)


def _invalid_version(text: str) -> InvalidInput:
    return InvalidInput(
        f"the version is {text[:32]!r}. Send a whole number such as 1, or no version for the "
        f"latest."
    )


def _wrong_method(method: str, path: str) -> InvalidInput:
    shown = path[:_MAX_SHOWN_CHARACTERS]
    expected = "POST" if path.endswith(("/infer", "/index", "load")) else "GET"
    return InvalidInput(f"{shown} does not take the method {method}. Send {expected}.")


def _percent_decode(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode(errors="replace")
