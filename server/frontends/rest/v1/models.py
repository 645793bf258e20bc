"""Encodes the status, the metadata and the statistics of models as JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from server.dataplane import Metadata, ModelStatus, Statistics
from server.servables.servable import VersionStatus
from tpuserve.errors import TpuserveError


def encode_status(versions: Iterable[VersionStatus]) -> bytes:
    """Encode the states of a model's versions as the proto3 JSON of a GetModelStatusResponse.

    Integers of 64 bits are strings in proto3 JSON.
    """
    return _encode(_version_list(versions))


def encode_list(models: Mapping[str, ModelStatus]) -> bytes:
    """Encode the status of all models as JSON, sorted by name: {"models": [...]}.

    TensorFlow Serving has no such list. The entry of a model has the status of each of its
    versions.
    """
    entries = [
        {"name": name, **_version_list(status.versions), "status": _error(status.reason)}
        for name, status in sorted(models.items())
    ]
    return _encode({"models": entries})


def encode_names(models: Iterable[str]) -> bytes:
    """Encode the names of all models as JSON, sorted, as KServe does: {"models": ["a", "b"]}."""
    return _encode({"models": sorted(models)})


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode the signatures of a model as the proto3 JSON of a GetModelMetadataResponse.

    Fields with default values are included.
    """
    definitions = {
        name: _message_to_dict(message) for name, message in sorted(metadata.signature_defs.items())
    }
    return _encode(
        {
            "model_spec": {
                "name": metadata.model,
                "signature_name": "",
                "version": str(metadata.version),
            },
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )


def encode_statistics(statistics: Statistics) -> bytes:
    """Encode the batching statistics of a version as JSON, for the path /statistics.

    TensorFlow Serving has no such path.
    """
    return _encode(
        {
            "model_spec": {"name": statistics.model, "version": str(statistics.version)},
            "batching": statistics.batching,
        }
    )


def _version_list(versions: Iterable[VersionStatus]) -> dict[str, Any]:
    return {"model_version_status": [_version(status) for status in versions]}


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


def _message_to_dict(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _encode(value: Any) -> bytes:
    # Lay out the JSON as libprotobuf does: one space per level, and a newline at the end.
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="replace")
