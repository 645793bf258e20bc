"""The two tag sets of a dual export, by name.

Source: tensorflow/cc/saved_model/tag_constants.h; a loader matches a tag set exactly.
"""

from collections.abc import Iterable
from typing import TypeAlias

TagSet: TypeAlias = frozenset[str]

SERVE: TagSet = frozenset({"serve"})
SERVE_TPU: TagSet = frozenset({"serve", "tpu"})


def parse_tags(text: str) -> TagSet:
    """The tag set that a comma-separated flag value names: "serve,tpu" → {serve, tpu}."""
    return frozenset(tag.strip() for tag in text.split(",") if tag.strip())


def format_tags(tags: Iterable[str]) -> str:
    """A tag set as people read it, in a stable order: {serve, tpu}."""
    return "{" + ", ".join(sorted(tags)) + "}"
