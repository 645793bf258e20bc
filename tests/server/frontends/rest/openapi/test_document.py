"""Which errors of the models the OpenAPI document hides."""

from typing import Any

import pytest

from server.dataplane import DataPlane
from server.frontends.rest.openapi.document import build_document
from server.frontends.rest.openapi.options import DocumentOptions
from tpuserve.errors import ModelExecutionError, ModelNotFound, TpuserveError


def raise_for_metadata(
    dataplane: DataPlane, error: TpuserveError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(dataplane, "metadata", raise_error)


def test_model_that_is_unloaded_meanwhile_is_omitted(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = build_document(dataplane, DocumentOptions())["paths"]
    raise_for_metadata(dataplane, ModelNotFound("half"), monkeypatch)
    left = build_document(dataplane, DocumentOptions())["paths"]
    assert "/v1/models/half:predict" in described.keys() - left.keys()


def test_other_errors_of_a_model_are_not_hidden(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_for_metadata(dataplane, ModelExecutionError("broken"), monkeypatch)
    with pytest.raises(ModelExecutionError):
        build_document(dataplane, DocumentOptions())
