"""Replaces attributes of a class or module temporarily, to change what TensorFlow code does."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched_attributes(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes of a class or module inside a context, and restore them afterwards."""
    originals = {name: vars(owner)[name] for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            if name in originals:
                setattr(owner, name, originals[name])
            else:
                delattr(owner, name)
