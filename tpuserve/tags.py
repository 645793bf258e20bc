"""Defines the tag sets of the CPU and the TPU metagraph of a SavedModel.

A loader finds a metagraph by its exact tag set. The tags are those of
tensorflow/cc/saved_model/tag_constants.h.
"""

from collections.abc import Iterable
from typing import TypeAlias

TagSet: TypeAlias = frozenset[str]

TPU = "tpu"
SERVE: TagSet = frozenset({"serve"})
SERVE_TPU: TagSet = SERVE | {TPU}


def parse_tags(text: str) -> TagSet:
    """Parse a tag set from a comma-separated text, such as "serve,tpu"."""
    return frozenset(tag.strip() for tag in text.split(",") if tag.strip())


def format_tags(tags: Iterable[str]) -> str:
    """Format a tag set as text with its tags sorted, such as "{serve, tpu}"."""
    return "{" + ", ".join(sorted(tags)) + "}"
