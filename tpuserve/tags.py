"""The tag sets of the two metagraphs of an export for CPU and TPU.

Source: tensorflow/cc/saved_model/tag_constants.h. A loader loads a metagraph only if the
tag set of the metagraph equals the requested tag set.
"""

from collections.abc import Iterable
from typing import TypeAlias

TagSet: TypeAlias = frozenset[str]

SERVE: TagSet = frozenset({"serve"})
SERVE_TPU: TagSet = frozenset({"serve", "tpu"})


def parse_tags(text: str) -> TagSet:
    """Parse a comma-separated flag value: "serve,tpu" → {serve, tpu}."""
    return frozenset(tag.strip() for tag in text.split(",") if tag.strip())


def format_tags(tags: Iterable[str]) -> str:
    """Format a tag set with its tags sorted: {serve, tpu}."""
    return "{" + ", ".join(sorted(tags)) + "}"
