"""What the OpenAPI document says of a model that it cannot describe."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from server.dataplane import DataPlane, ModelSpec
from server.dataplane.results import Metadata
from server.frontends.rest.openapi.app import build_document
from server.frontends.rest.openapi.options import DocumentOptions
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tpuserve.errors import ModelExecutionError, ModelNotFound


def test_model_that_is_unloaded_meanwhile_is_omitted(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = build_document(dataplane, DocumentOptions())["paths"]

    def raise_error(*arguments: Any) -> None:
        raise ModelNotFound("half")

    monkeypatch.setattr(dataplane, "metadata", raise_error)
    left = build_document(dataplane, DocumentOptions())["paths"]
    assert "/v1/models/half:predict" in described.keys() - left.keys()


@pytest.mark.parametrize("error", [ModelExecutionError("broken"), ValueError("broken")])
def test_model_that_cannot_be_described_does_not_hide_the_others(
    manager: Manager, dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def raise_for_half(spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        if spec.model == "half":
            raise error
        return metadata(spec, fields)

    metadata = dataplane.metadata
    monkeypatch.setattr(dataplane, "metadata", raise_for_half)
    aspire(manager, "other", {1: Path("/models/other/1")})
    document = build_document(dataplane, DocumentOptions())
    half = {"name": "model half", "description": "This model cannot be described: broken"}
    assert document["tags"][:2] == [half, {"name": "model other"}]
    assert "/v1/models/other:predict" in document["paths"]
    assert "/v1/models/half:predict" not in document["paths"]
