"""The lines that Prometheus reads, as TensorFlow Serving writes them.

Written here because client libraries add "_total" to counters and HELP lines to all.
Source: tensorflow_serving/util/prometheus_exporter.cc;
https://prometheus.io/docs/instrumenting/exposition_formats.
"""

import re
from collections.abc import Iterable

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def kind(name: str, what: str) -> str:
    """The line that opens a metric: "# TYPE :tensorflow:serving:request_count counter"."""
    return f"# TYPE {exported(name)} {what}"


def sample(name: str, labels: Iterable[tuple[str, str]], value: float, suffix: str = "") -> str:
    """The line of one value."""
    inside = ",".join(f'{label}="{each.translate(_ESCAPES)}"' for label, each in labels)
    return f"{exported(name)}{suffix}{{{inside}}} {number(value)}"


def exported(name: str) -> str:
    """A name of the registry as it is exported: "/a/b" → ":a:b"."""
    return _NOT_IN_NAMES.sub(":", name)


def number(value: float) -> str:
    """A value: integers as such, so that a sum of many is exact."""
    return str(int(value)) if value == int(value) else repr(value)


def bound(value: float) -> str:
    """The upper bound of a bucket, with six digits: 188.9568 → "188.957"."""
    return f"{value:g}"
