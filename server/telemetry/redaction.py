"""Removes secrets from the query strings in spans, as OpenTelemetry's conventions require.

Source: https://opentelemetry.io/docs/specs/semconv/registry/attributes/url, "url.query".
"""

import re
from urllib.parse import unquote_plus

_REDACTED = "REDACTED"
# Matches the names of query parameters whose values are secrets. The names must be in lower case.
_SECRET = re.compile(
    "auth(?!ors?$)|credential|jwt|key|passw|pwd|secret|session|sig$|signature$|token"
)
_SEPARATORS = re.compile("([&;])")


def redact_query(query: str) -> str:
    """Return a query string with the text REDACTED in the place of each secret.

    The server reads no secrets from query strings, but clients may send some, such as ?key=VALUE.
    """
    if "=" not in query:
        return query
    return "".join(map(_redact_parameter, _SEPARATORS.split(query)))


def _redact_parameter(parameter: str) -> str:
    name, separator, value = parameter.partition("=")
    is_secret = value and _SECRET.search(unquote_plus(name).lower())
    return f"{name}={_REDACTED}" if is_secret else f"{name}{separator}{value}"
