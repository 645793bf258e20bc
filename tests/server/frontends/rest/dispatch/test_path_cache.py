"""The results of parsing are stored for short paths only."""

from collections.abc import Callable

import pytest

from server.frontends.rest import v1_router as v1_paths
from server.frontends.rest import v2_paths as v2_paths
from server.frontends.rest.dispatch.router import Route


@pytest.mark.parametrize(
    ("parse_path", "path"),
    [
        (v1_paths.parse_path, "/v1/models/{}:predict"),
        (v2_paths.parse_path, "/v2/models/{}/infer"),
        (v2_paths.parse_path, "/v2/models/half/infer?{}"),
    ],
)
def test_only_short_paths_are_stored(parse_path: Callable[..., Route], path: str) -> None:
    short, long = path.format("half"), path.format("x" * 1025)
    assert parse_path("POST", short) is parse_path("POST", short)
    assert parse_path("POST", long) is not parse_path("POST", long)
    assert parse_path("POST", long) == parse_path("POST", long)
