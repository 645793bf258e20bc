"""What is served, as JSON: the status of versions, and their metadata."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from server.dataplane import Metadata, ModelStatus
from server.servables.servable import VersionStatus
from tpuserve.errors import TpuserveError


def encode_status(versions: Iterable[VersionStatus]) -> bytes:
    """What proto3 JSON makes of a GetModelStatusResponse: 64-bit integers are strings."""
    return _write(_status(versions))


def encode_list(models: Mapping[str, ModelStatus]) -> bytes:
    """{"models": [...]}: the name and status of each, by name; TensorFlow Serving has no such.

    Beside the status of its versions a model has one of its own: OK, or why none is known.
    """
    listed = [
        {"name": name, **_status(each.versions), "status": _error(each.reason)}
        for name, each in sorted(models.items())
    ]
    return _write({"models": listed})


def encode_metadata(metadata: Metadata) -> bytes:
    """What proto3 JSON makes of a GetModelMetadataResponse, defaults and all."""
    definitions = {name: _message(each) for name, each in sorted(metadata.signature_defs.items())}
    return _write(
        {
            "model_spec": {
                "name": metadata.model,
                "signature_name": "",
                "version": str(metadata.version),
            },
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )


def _status(versions: Iterable[VersionStatus]) -> dict[str, Any]:
    return {"model_version_status": [_version(each) for each in versions]}


def _version(status: VersionStatus) -> dict[str, object]:
    return {
        "version": str(status.version),
        "state": status.state.name,
        "status": _error(status.error, status.note),
    }


def _error(error: TpuserveError | None, note: str = "") -> dict[str, str]:
    if error is None:
        return {"error_code": "OK", "error_message": note}
    return {"error_code": error.code.name, "error_message": str(error)}


def _message(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _write(value: Any) -> bytes:
    # As libprotobuf does: one space a level, and the end of a line at the end.
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="replace")
