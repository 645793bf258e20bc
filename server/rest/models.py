"""GET /v1/models/NAME[/versions/V]: the status of a model's versions as JSON."""

from collections.abc import Iterable

import orjson

from server.servable import VersionStatus


def encode_status(versions: Iterable[VersionStatus]) -> bytes:
    """What proto3 JSON makes of a GetModelStatusResponse: 64-bit integers are strings."""
    return orjson.dumps({"model_version_status": [_encode(each) for each in versions]})


def _encode(status: VersionStatus) -> dict[str, object]:
    error = status.error
    return {
        "version": str(status.version),
        "state": status.state.name,
        "status": {
            "error_code": "OK" if error is None else error.code.name,
            "error_message": "" if error is None else str(error),
        },
    }
