"""Over REST, a model needs no "serving_default", and the query names another signature."""

from collections.abc import Mapping
from typing import Any

import pytest

from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from tests.server.dataplane.test_default_signature import OnlyModel
from tests.server.fakes import FakeLoader, FakeModel
from tests.server.frontends.rest.v2.test_infer import Client, tensor
from tpuserve.saved_model.signature import Signature, TensorSpec

X = {"inputs": [tensor("x", "FP32", [2], data=[1, 5])]}


class TwoModel(FakeModel):
    """Has two signatures, neither of which is "serving_default"."""

    signatures: Mapping[str, Signature] = {
        name: FakeModel.signatures[name] for name in ("ratio", "echo")
    }


class SparseModel(FakeModel):
    """Takes a sparse x and returns a ragged y; the signature "echo" has dense tensors."""

    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            {"x": TensorSpec("", "float32", (None, 4))}, {"y": TensorSpec("", "string", None)}
        ),
        "echo": FakeModel.signatures["echo"],
    }


def serve(
    model_type: type[FakeModel], loader: FakeLoader, request: pytest.FixtureRequest
) -> Client:
    loader.model_type = model_type
    dataplane: DataPlane = request.getfixturevalue("dataplane")
    return Client(build_rest_app(dataplane))


@pytest.fixture
def only(loader: FakeLoader, request: pytest.FixtureRequest) -> Client:
    return serve(OnlyModel, loader, request)


@pytest.fixture
def two(loader: FakeLoader, request: pytest.FixtureRequest) -> Client:
    return serve(TwoModel, loader, request)


def test_only_signature_is_described_and_run(only: Client) -> None:
    metadata = only.request("GET", "/v2/models/half").json()
    assert metadata["inputs"] == [tensor("x", "FP32", [-1])]
    config = only.request("GET", "/v2/models/half/config").json()
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}]
    assert config["parameters"] == {"TF_SIGNATURE_DEF": {"string_value": "only"}}
    assert only.infer(X).json()["outputs"] == [tensor("y", "FP32", [2], data=[2.5, 4.5])]


def test_tensorflow_servings_api_does_not_guess_the_signature(only: Client) -> None:
    response = only.request("POST", "/v1/models/half:predict", b'{"instances": [1]}')
    assert response.status_code == 400
    assert 'name: "serving_default" not found in signature def' in response.json()["error"]


@pytest.mark.parametrize("path", ["", "/config"])
def test_several_signatures_without_a_default_are_named(two: Client, path: str) -> None:
    response = two.request("GET", f"/v2/models/half{path}")
    expected = (
        'Serving signature key "serving_default" not found. Model half has echo, ratio. Send one '
        "of these names as signature_name."
    )
    assert (response.status_code, response.json()) == (400, {"error": expected})
    assert two.infer(X).json() == {"error": expected}


@pytest.mark.parametrize("path", ["/v2/models/half", "/v2/models/half/versions/3/"])
def test_query_names_a_signature(two: Client, path: str) -> None:
    metadata = two.request("GET", f"{path}?verbose=1&signature_name=e%63ho").json()
    assert metadata["inputs"] == [tensor("text", "BYTES", [-1])]
    config = two.request("GET", f"{path.rstrip('/')}/config?signature_name=ratio").json()
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}]
    assert config["parameters"] == {"TF_SIGNATURE_DEF": {"string_value": "ratio"}}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("signature_name=no", 'key "no" not found. Model half has echo, ratio. Send one of'),
        ("signature_name=echo&signature_name=ratio", "has 2 parameters signature_name. Send one."),
    ],
)
def test_query_without_one_signature_is_refused(two: Client, query: str, text: str) -> None:
    response: Any = two.request("GET", f"/v2/models/half?{query}")
    assert response.status_code == 400
    assert text in response.json()["error"]


def test_sparse_and_composite_tensors_are_not_described_as_dense(
    loader: FakeLoader, request: pytest.FixtureRequest
) -> None:
    client = serve(SparseModel, loader, request)
    metadata = client.request("GET", "/v2/models/half").json()
    assert metadata["inputs"] == [tensor("x", "COMPOSITE_FP32", [-1, 4])]
    assert metadata["outputs"] == [tensor("y", "COMPOSITE_BYTES", [-1])]
    config = client.request("GET", "/v2/models/half/config").json()
    assert config["max_batch_size"] == 0
    assert config["input"] == [{"name": "x", "data_type": "TYPE_INVALID", "dims": [-1, 4]}]


def test_document_shows_no_request_for_a_sparse_tensor(
    loader: FakeLoader, request: pytest.FixtureRequest
) -> None:
    client = serve(SparseModel, loader, request)
    paths = client.request("GET", "/openapi.json").json()["paths"]
    content = paths["/v2/models/half/infer"]["post"]["requestBody"]["content"]["application/json"]
    assert [schema["title"] for schema in content["schema"]["anyOf"]] == ["echo"]
    assert list(content["examples"]) == ["echo"]
    metadata = paths["/v1/models/half/metadata"]["get"]["responses"]["200"]["description"]
    assert "the sparse or composite tensors of `serving_default`" in metadata
