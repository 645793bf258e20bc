"""What the page learns of the signatures of a version, to build its forms."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pytest

from server.config.settings import Settings
from server.dataplane import DataPlane, ModelSpec, SampleRequest
from server.dataplane.results import ExampleFeature, SampleInput
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.console.forms import describe_version
from server.models.manager import Manager
from server.servables.servable import Model
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask
from tpuserve.errors import UnsupportedModel
from tpuserve.saved_model.signature import CLASSIFY_METHOD, Signature, TensorSpec

URL = "/console/signatures"


def describe(
    serve: Serve, inputs: Mapping[str, TensorSpec], sample: SampleInput | None, method: str = ""
) -> dict[str, Any]:
    """Return the description of a signature with these inputs, which all have the same sample."""

    class OneSignature(FakeModel):
        signatures = {"serving_default": Signature(inputs, {}, method)}

    def make_sample(model: Model, directory: Path, name: str) -> SampleRequest:
        assert sample is not None
        return SampleRequest({alias: sample for alias in inputs})

    manager = Manager(lambda directory: OneSignature())
    aspire(manager, "half", {3: Path("/models/half/3")})
    dataplane = DataPlane(manager, make_sample=None if sample is None else make_sample)
    address = serve(build_rest_app(dataplane, Settings(Path("/models/half"))))
    reply, body = ask(address, "GET", f"{URL}?model=half&version=3")
    assert reply.status == 200
    (signature,) = json.loads(body)["signatures"]
    return dict(signature)


def tensor(dtype: str, *shape: int | None) -> TensorSpec:
    return TensorSpec("x:0", dtype, shape)


@pytest.mark.parametrize(
    ("alias", "spec", "picture"),
    [
        ("x", tensor("float32", None, 28, 20, 3), (28, 20, 3, False)),
        ("x", tensor("uint8", None, 28, 28, 1), (28, 28, 1, False)),
        ("image", tensor("uint8", None, None, None, 3), (None, None, 3, False)),
        ("image", tensor("float32", None, 28, 28), (28, 28, None, False)),
        ("image", tensor("float32", None, 784), (28, 28, None, True)),
        ("x", tensor("float32", None, None, None, 3), None),
        ("x", tensor("float32", None, 28, 28, 5), None),
        ("x", tensor("float32", None, 4, 4, 3), None),
        ("x", tensor("float32", None, 28, 28), None),
        ("image", tensor("float32", None, 785), None),
        ("image", tensor("int64", None, 28, 28, 3), None),
        ("image", TensorSpec("x:0", "float32", None), None),
    ],
)
def test_tensors_that_hold_pictures_are_recognised(
    serve: Serve, alias: str, spec: TensorSpec, picture: Any
) -> None:
    signature = describe(serve, {alias: spec}, SampleInput((1,)))
    described = signature["inputs"][0]["picture"]
    names = ("height", "width", "channels", "is_flat")
    assert described == (None if picture is None else dict(zip(names, picture, strict=True)))


def test_values_are_json_text_with_all_digits(serve: Serve) -> None:
    number = SampleInput((1,), np.array([2**53 + 1]))
    assert describe(serve, {"x": tensor("int64", None)}, number)["inputs"][0]["value"] == (
        "[9007199254740993]"
    )
    binary = np.empty(1, object)
    binary[:] = [b"\xff"]
    text = describe(serve, {"x": tensor("string", None)}, SampleInput((1,), binary))
    assert json.loads(text["inputs"][0]["value"]) == [{"b64": "/w=="}]


def test_values_that_json_requests_cannot_represent_say_so(serve: Serve) -> None:
    half = SampleInput((1,), np.array([1], np.float16))
    (described,) = describe(serve, {"x": tensor("float16", None)}, half)["inputs"]
    assert (described["value"], "type: half" in described["error"]) == (None, True)


def test_only_features_make_a_form_for_classify(serve: Serve) -> None:
    inputs = {"inputs": tensor("string", None)}
    features = {
        "age": ExampleFeature("int64", 1, (7,)),
        "name": ExampleFeature("bytes", 1, (b"a",)),
        "pixels": ExampleFeature("float", 5000),
    }
    sample = SampleInput((1,), np.array([b"..."], object), features)
    signature = describe(serve, inputs, sample, CLASSIFY_METHOD)
    assert signature["verb"] == "classify"
    texts = [feature["values"] for feature in signature["inputs"][0]["features"]]
    assert texts == ["[7]", '["a"]', ""]
    unknown = SampleInput((1,), np.array([b"..."], object))
    assert describe(serve, inputs, unknown, CLASSIFY_METHOD)["verb"] == "predict"


def test_signature_without_sample_says_why(serve: Serve) -> None:
    signature = describe(serve, {"x": tensor("float32", None)}, None)
    assert signature["reason"] == (
        "this server cannot make an example for signature 'serving_default' of half. Write the "
        "inputs yourself."
    )
    assert signature["inputs"][0]["value"] is None


def test_unforeseen_fault_of_one_signature_leaves_the_others(manager: Manager) -> None:
    def make_sample(model: Model, directory: Path, name: str) -> SampleRequest:
        if name == "two":
            raise ValueError("a fault that nobody has foreseen")
        return SampleRequest({})

    dataplane = DataPlane(manager, make_sample=make_sample)
    signatures = describe_version(dataplane, ModelSpec("half", 3))["signatures"]
    reasons = {one["name"]: one["reason"] for one in signatures if one["reason"]}
    assert reasons == {
        "two": "no example for signature 'two' of half can be made: a fault that nobody has "
        "foreseen. Write the inputs yourself."
    }


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("model=half", 400, "Send model=NAME&version=NUMBER, each once."),
        ("model=half&version=three", 400, "Send model=NAME&version=NUMBER, each once."),
        ("model=half&model=other&version=3", 400, "Send model=NAME&version=NUMBER, each once."),
        ("model=half&version=4", 404, "Servable not found"),
        ("model=other&version=3", 404, "Servable not found"),
    ],
)
def test_other_queries_are_refused(
    dataplane: DataPlane, serve: Serve, query: str, status: int, message: str
) -> None:
    address = serve(build_rest_app(dataplane, Settings(Path("/models/half"))))
    reply, body = ask(address, "GET", f"{URL}?{query}")
    assert (reply.status, message in json.loads(body)["error"]) == (status, True)


def test_sample_is_made_once_per_version(manager: Manager) -> None:
    calls: list[str] = []

    def make_sample(model: Model, directory: Path, name: str) -> SampleRequest:
        calls.append(name)
        return SampleRequest({})

    dataplane = DataPlane(manager, make_sample=make_sample)
    for _ in range(2):
        dataplane.sample_request(ModelSpec("half"))
        dataplane.sample_request(ModelSpec("half", signature_name="two"))
    assert calls == ["serving_default", "two"]


def test_signature_without_a_sample_is_tried_once_by_one_thread(manager: Manager) -> None:
    calls: list[str] = []

    def make_sample(model: Model, directory: Path, name: str) -> SampleRequest:
        calls.append(name)
        # Give other threads the time to make the sample too.
        with suppress(BrokenBarrierError):
            barrier.wait(1)
        raise UnsupportedModel("no sample")

    def request(_: int) -> str:
        with pytest.raises(UnsupportedModel) as caught:
            dataplane.sample_request(ModelSpec("half"))
        return str(caught.value)

    barrier = Barrier(2)
    dataplane = DataPlane(manager, make_sample=make_sample)
    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(request, range(8))) == ["no sample"] * 8
    assert calls == ["serving_default"]
