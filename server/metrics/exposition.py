"""Formats metrics in Prometheus's text exposition format, as TensorFlow Serving does.

The client library of Prometheus is not used, because it would append "_total" to the names of
TensorFlow Serving's counters. Source: tensorflow_serving/util/prometheus_exporter.cc;
https://prometheus.io/docs/instrumenting/exposition_formats.
"""

import re
from collections.abc import Iterable

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def type_line(name: str, metric_type: str) -> str:
    """Format the line with a metric's type: "# TYPE :tensorflow:serving:request_count counter"."""
    return f"# TYPE {exported_name(name)} {metric_type}"


def help_line(name: str, text: str) -> str:
    """Format the line with a metric's description: "# HELP name text"."""
    return f"# HELP {exported_name(name)} {text}"


def format_labels(labels: Iterable[tuple[str, str]]) -> str:
    """Format pairs of a label and its value: 'model_name="half",status="OK"'."""
    return ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels)


def exported_name(name: str) -> str:
    """Convert a metric's name in the registry to the name for Prometheus: "/a/b" becomes ":a:b"."""
    return _NOT_IN_NAMES.sub(":", name)


def format_number(value: float) -> str:
    """Format a value of a metric.

    Integers have no exponent, so that all digits of large sums are printed.
    """
    return str(int(value)) if value == int(value) else repr(value)


def format_bound(value: float) -> str:
    """Format the upper bound of a bucket with six digits: 188.9568 becomes "188.957"."""
    return f"{value:g}"
