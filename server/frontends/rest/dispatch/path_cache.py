"""Bounds the memory of what the server stores for the paths of past requests."""

from collections.abc import Callable
from functools import lru_cache, wraps

from server.frontends.rest.dispatch.router import Route

MAX_STORED_PATH = 1024
"""The largest number of characters of a path for which anything is stored."""

MAX_STORED_PATHS = 1024
"""The largest number of paths for which anything is stored."""


def cache_short_paths(parse: Callable[[str, str], Route]) -> Callable[[str, str], Route]:
    """Decorate a function that parses paths: store its results for the last short paths."""
    cached = lru_cache(maxsize=MAX_STORED_PATHS)(parse)

    @wraps(parse)
    def parse_path(method: str, path: str) -> Route:
        return (cached if len(path) <= MAX_STORED_PATH else parse)(method, path)

    return parse_path
