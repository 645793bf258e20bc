"""Classify, regress, metadata and the OpenAPI document, for a model that counts bytes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends import output_memory
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from server.servables.servable import Array
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.proto import saved_model_pb2
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD, Signature, TensorSpec


def spec(dtype: str, name: str, *shape: int | None) -> TensorSpec:
    return TensorSpec(f"{name}:0", dtype, shape)


INPUTS = {"inputs": spec("string", "in", None)}


def definition(signature: Signature) -> Any:
    message = saved_model_pb2.SignatureDef(method_name=signature.method_name)
    numbers = {
        "string": saved_model_pb2.DT_STRING,
        "float32": saved_model_pb2.DT_FLOAT,
        "int64": saved_model_pb2.DT_INT64,
    }
    for tensors, specs in (
        (message.inputs, signature.inputs),
        (message.outputs, signature.outputs),
    ):
        for alias, tensor in specs.items():
            tensors[alias].name = tensor.name
            tensors[alias].dtype = numbers[tensor.dtype]
            for size in tensor.shape or ():
                tensors[alias].tensor_shape.dim.add(size=-1 if size is None else size)
    return message


class CountingModel(FakeModel):
    """Returns the lengths of examples, as values or as labels with scores."""

    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            INPUTS,
            {"classes": spec("string", "c", None, 1), "scores": spec("float32", "s", None, 1)},
            CLASSIFY_METHOD,
        ),
        "length": Signature(INPUTS, {"outputs": spec("float32", "o", None)}, REGRESS_METHOD),
    }
    signature_defs: Mapping[str, Any] = {
        name: definition(signature) for name, signature in signatures.items()
    }

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        lengths = np.array([len(example) for example in inputs["inputs"]], np.float32)
        if signature_name == "length":
            return {"outputs": lengths}
        labels = np.array([[b"%d bytes" % length] for length in lengths.astype(int)], object)
        return {"classes": labels, "scores": lengths[:, None] / 2}


@pytest.fixture
def address(serve: Serve) -> Address:
    manager = Manager(lambda directory: CountingModel())
    aspire(manager, "count", {7: Path("/models/count/7")})
    return serve(build_rest_app(DataPlane(manager), memory_budget=MemoryBudget(1 << 30)))


def post(address: Address, verb: str, body: Any) -> tuple[int, Any]:
    reply, answer = ask(address, "POST", f"/v1/models/count:{verb}", json.dumps(body).encode())
    return reply.status, json.loads(answer)


# A serialised Example with the feature "a", an Int64List of the value 1; it has 14 bytes.
ONE = {"a": 1}


def test_classify_returns_pairs_of_label_and_score(address: Address) -> None:
    body = b'{"examples": [{"a": 1}, {"ab": [1]}]}'
    reply, answer = ask(address, "POST", "/v1/models/count:classify", body)
    assert reply.status == 200
    assert answer == (b'{\n    "results": [[["14 bytes", 7.0]], [["15 bytes", 7.5]]\n    ]\n}')


@pytest.mark.parametrize(
    ("verb", "body", "constant"),
    [
        ("classify", {"examples": [ONE]}, "_JSON_BYTES_PER_PAIR"),
        ("regress", {"signature_name": "length", "examples": [ONE]}, "_JSON_BYTES_PER_NUMBER"),
    ],
)
def test_result_without_memory_for_its_text_is_refused(
    verb: str, body: Any, constant: str, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post(address, verb, body)[0] == 200
    # The memory budget has fewer bytes. A result of any size counts.
    monkeypatch.setattr(output_memory, constant, 2**60)
    monkeypatch.setattr(output_memory, "_UNCOUNTED_BYTES", 0)
    status, answer = post(address, verb, body)
    assert status == 413
    assert "(--max_request_memory_bytes)" in answer["error"]


def test_regress_returns_values_and_merges_the_context_into_each_example(address: Address) -> None:
    body = {"signature_name": "length", "context": ONE, "examples": [ONE, {}]}
    assert post(address, "regress", body) == (200, {"results": [28.0, 16.0]})


@pytest.mark.parametrize(
    ("verb", "body", "error"),
    [
        ("classify", {}, "When method is classify, key 'examples' is expected and was not found"),
        ("regress", {}, "When method is classify, key 'examples' is expected and was not found"),
        (
            "classify",
            {"signature_name": "S", "examples": [ONE]},
            "No signature was found with the name: S",
        ),
        (
            "classify",
            {"signature_name": "length", "examples": [ONE]},
            'Expected classification signature outputs to contain at least one of "classes" or ',
        ),
        ("regress", {"examples": [ONE]}, "Expected one output Tensor."),
        ("regress", {"signature_name": 5}, "'signature_name' key must be a string value."),
    ],
)
def test_invalid_requests_are_refused_with_400(
    address: Address, verb: str, body: Any, error: str
) -> None:
    status, answer = post(address, verb, body)
    assert status == 400
    assert error in answer["error"]


def test_metadata_is_proto3_json_with_an_indent_of_one(address: Address) -> None:
    for path in ("/v1/models/count/metadata", "/v1/models/count/versions/7/metadata"):
        reply, body = ask(address, "GET", path)
        assert reply.status == 200
        document = json.loads(body)
        assert body.startswith(b'{\n "model_spec": {\n  "name": "count",\n  "signature_name": "",')
        assert document["model_spec"] == {"name": "count", "signature_name": "", "version": "7"}
        definitions = document["metadata"]["signature_def"]["signature_def"]
        assert list(definitions) == ["length", "serving_default"]
        assert definitions["length"]["method_name"] == REGRESS_METHOD
        shape = definitions["length"]["inputs"]["inputs"]["tensor_shape"]
        assert shape == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/models/other/metadata", "Servable not found for request: Latest(other)"),
        (
            "/v1/models/count/versions/8/metadata",
            "Servable not found for request: Specific(count, 8)",
        ),
    ],
)
def test_metadata_of_an_unknown_model_or_version_is_404(
    address: Address, path: str, error: str
) -> None:
    reply, body = ask(address, "GET", path)
    assert (reply.status, json.loads(body)) == (404, {"error": error})


def test_metadata_respects_a_label_and_status_ignores_it(address: Address) -> None:
    reply, body = ask(address, "GET", "/v1/models/count/labels/no/metadata")
    assert reply.status == 400
    assert json.loads(body) == {"error": "Unrecognized servable version label: no"}
    assert ask(address, "GET", "/v1/models/count/labels/no")[0].status == 200


def test_all_models_are_listed(address: Address) -> None:
    reply, body = ask(address, "GET", "/v1/models")
    status = {"error_code": "OK", "error_message": ""}
    versions = [{"version": "7", "state": "AVAILABLE", "status": status}]
    assert reply.status == 200
    model = {"name": "count", "model_version_status": versions, "status": status}
    assert json.loads(body) == {"models": [model]}


def test_openapi_has_a_schema_for_every_signature(address: Address) -> None:
    reply, body = ask(address, "GET", "/openapi.json")
    assert reply.status == 200
    paths = json.loads(body)["paths"]
    assert {"/v1/models/count:predict", "/v1/models/count:classify"} <= paths.keys()
    request = paths["/v1/models/count:predict"]["post"]["requestBody"]
    schemas = request["content"]["application/json"]["schema"]["anyOf"]
    assert [schema["title"] for schema in schemas] == [
        "length: instances",
        "length: inputs",
        "serving_default: instances",
        "serving_default: inputs",
    ]
    assert schemas[0]["required"] == ["signature_name", "instances"]
    regress = paths["/v1/models/count:regress"]["post"]["requestBody"]["content"]
    schema = regress["application/json"]["schema"]
    assert schema["required"] == ["examples", "signature_name"]


def test_docs_page_refers_to_no_other_server(address: Address) -> None:
    reply, page = ask(address, "GET", "/docs")
    assert reply.status == 200
    assert b"http://" not in page
    assert b"https://" not in page
    for path in ("/docs/static/swagger-ui-bundle.js", "/docs/static/swagger-ui.css"):
        assert path.encode() in page
        reply, body = ask(address, "GET", path)
        assert (reply.status, len(body) > 100_000) == (200, True)
