"""The clients of all APIs get the same arrays from a real server."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tpuserve
from tpuserve import cli
from tpuserve.client import Client, VersionStatus
from tpuserve.errors import InvalidInput, InvalidSetting, InvalidTensor, NotFound
from tpuserve.local_server.server import LocalServer
from tpuserve.saved_model.signature import TensorSpec

ECHOED = ("float16", "bfloat16", "float64", "string", "int8", "int64", "uint64", "bool")
APIS = [("rest", "v1"), ("rest", "v2"), ("grpc", "v1"), ("grpc", "v2")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Serve y = x / 2 + 2, a signature with two outputs, and one per dtype that returns y = x.

    The model "only" has y = x / 2 + 2 as its signature "only", and no other signature. The model
    "words" returns rows of strings: y = x; two more of its signatures return a ragged and a sparse
    tensor.
    """
    import tensorflow as tf

    def signature(function: Any, *specs: Any) -> Any:
        return tf.function(function, input_signature=specs).get_concrete_function()

    def spec(dtype: Any, name: str = "x") -> Any:
        return tf.TensorSpec([None], dtype, name=name)

    def two(a: Any, b: Any) -> Any:
        return {"sum": a + b, "difference": a - b}

    signatures = {
        name: signature(lambda x: {"y": tf.identity(x)}, spec(getattr(tf, name))) for name in ECHOED
    }
    signatures["serving_default"] = signature(lambda x: {"y": x / 2 + 2}, spec(tf.float32))
    signatures["two"] = signature(two, spec(tf.int32, "a"), spec(tf.int32, "b"))
    base = tmp_path_factory.mktemp("models") / 'a "quoted" name'
    tf.saved_model.save(tf.Module(), str(base / "1"), signatures=signatures)
    only = tmp_path_factory.mktemp("only")
    one = {"only": signatures["serving_default"]}
    tf.saved_model.save(tf.Module(), str(only / "1"), signatures=one)
    words = tmp_path_factory.mktemp("words")
    rows = tf.TensorSpec([None, None], tf.string, name="x")
    several = {
        "serving_default": signature(lambda x: {"y": tf.identity(x)}, rows),
        "ragged": signature(lambda x: {"y": tf.strings.split(x)}, spec(tf.string)),
        "sparse": signature(lambda x: {"y": tf.strings.split(x).to_sparse()}, spec(tf.string)),
    }
    tf.saved_model.save(tf.Module(), str(words / "1"), signatures=several)
    models = {"half": base, "only": only, "words": words}
    with tpuserve.serve(models, enable_batching=False) as server:
        yield server


@pytest.fixture(params=APIS, ids=lambda pair: "-".join(pair))
def client(server: LocalServer, request: pytest.FixtureRequest) -> Iterator[Client]:
    protocol, api = request.param
    with server.client(protocol, api=api) as client:
        yield client


@pytest.mark.slow
def test_lists_get_the_dtype_of_the_signature(client: Client) -> None:
    y = client.predict("half", {"x": [1, 2, 5]})["y"]
    assert y.dtype == np.float32
    assert y.tolist() == [2.5, 3.0, 4.5]
    y[0] = 7  # The array is the caller's own.


@pytest.mark.parametrize("rows", [[[]], [[], []]])
def test_rows_of_strings_may_be_empty(client: Client, rows: list[list[str]]) -> None:
    y = client.predict("words", {"x": rows})["y"]
    assert y.dtype == object
    assert y.tolist() == rows


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_sparse_and_ragged_outputs_are_among_the_signatures(
    server: LocalServer, protocol: Any
) -> None:
    with server.client(protocol, api="v1") as client:
        outputs = {name: one.outputs["y"] for name, one in client.signatures("words").items()}
    assert {name: str(spec) for name, spec in outputs.items()} == {
        "serving_default": "string [?, ?]",
        "ragged": "sparse or composite string <unknown rank>",
        "sparse": "sparse or composite string [?, ?]",
    }


def test_infinite_values_and_nan_arrive(client: Client) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    np.testing.assert_array_equal(client.predict("half", {"x": x})["y"], x / 2 + 2)


def sample(name: str) -> Any:
    import ml_dtypes

    if name == "string":
        values = np.empty(3, object)
        values[:] = [b"a\0", "é".encode(), b"\xff"]
        return values
    if name.startswith("int"):
        return np.array([0, np.iinfo(name).min, np.iinfo(name).max], name)
    if name == "uint64":
        return np.array([0, 2**64 - 1], name)
    return np.array([0, 1, 1, 0]).astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.mark.parametrize("name", ECHOED)
@pytest.mark.parametrize(("protocol", "api"), APIS)
def test_arrays_of_each_dtype_return_as_they_were_sent(
    server: LocalServer, protocol: Any, api: str, name: str
) -> None:
    if (protocol, api) == ("rest", "v1") and name in ("float16", "bfloat16"):
        pytest.skip("TensorFlow Serving's REST API refuses these dtypes")
    x = sample(name)
    with server.client(protocol, api=api) as client:
        y = client.predict("half", {"x": x}, signature=name)["y"]
    assert y.dtype == x.dtype
    assert y.tolist() == x.tolist()


def test_outputs_are_chosen_by_name(client: Client) -> None:
    a, b = np.array([5, 7], np.int32), np.array([2, 3], np.int32)
    both = client.predict("half", {"a": a, "b": b}, signature="two")
    assert {name: array.tolist() for name, array in both.items()} == {
        "sum": [7, 10],
        "difference": [3, 4],
    }
    one = client.predict("half", {"a": a, "b": b}, signature="two", outputs=["sum"])
    assert list(one) == ["sum"]


@pytest.mark.parametrize(("protocol", "api"), APIS)
def test_lists_for_another_signature_get_its_dtypes(
    server: LocalServer, protocol: Any, api: Any
) -> None:
    with server.client(protocol, api=api) as client:
        lists = {"a": [5], "b": [2]}
        if (protocol, api) == ("grpc", "v2"):
            with pytest.raises(InvalidInput, match="Give NumPy arrays for 'two'"):
                client.predict("half", lists, signature="two")
        else:
            assert client.predict("half", lists, signature="two")["sum"].dtype == np.int32


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_only_signature_needs_no_name_in_v2(server: LocalServer, protocol: Any) -> None:
    with server.client(protocol, api="v2") as client:
        assert list(client.signatures("only")) == ["only"]
        for name in ("", "only"):
            assert client.predict("only", {"x": [1]}, signature=name)["y"].tolist() == [2.5]
    with server.client(protocol, api="v1") as client, pytest.raises(InvalidInput):
        client.predict("only", {"x": [1]})


@pytest.mark.parametrize("signature", [(), ("--signature", "only")])
def test_bench_measures_the_only_signature(server: LocalServer, signature: tuple[str, ...]) -> None:
    briefly = "--window 0.05 --warm-up 0.01 --max-windows 500 --tolerance 1000 --concurrency 1"
    for url in (server.rest_url, server.grpc_url):
        options = ("--model", "only", "--api", "v2", *signature, *briefly.split())
        with pytest.raises(SystemExit) as caught:
            cli.main(["bench", url, *options])
        assert caught.value.code == 0


def test_the_signatures_and_versions_are_those_of_the_model(client: Client) -> None:
    signature = client.signatures("half")["serving_default"]
    tensors = {**signature.inputs, **signature.outputs}
    assert {name: (spec.dtype, spec.shape) for name, spec in tensors.items()} == {
        "x": ("float32", (None,)),
        "y": ("float32", (None,)),
    }
    assert all(isinstance(spec, TensorSpec) for spec in tensors.values())
    (version,) = client.versions("half")
    assert isinstance(version, VersionStatus)
    assert (version.version, version.error) == (1, "")
    assert version.state in ("AVAILABLE", "READY")
    assert client.is_ready("half")
    assert client.is_ready("half", version=1)
    assert not client.is_ready("half", version=2)
    assert not client.is_ready("other")


def test_what_does_not_exist_is_not_found(client: Client) -> None:
    x = {"x": np.ones(2, np.float32)}
    with pytest.raises(NotFound, match="other"):
        client.predict("other", x)
    with pytest.raises(NotFound, match="7"):
        client.predict("half", x, version=7)


def test_a_wrong_input_is_invalid(client: Client) -> None:
    for inputs, signature in (({"z": [1]}, ""), ({"x": np.ones(2)}, "none"), ({}, "")):
        with pytest.raises(InvalidInput):
            client.predict("half", inputs, signature=signature)
    with pytest.raises(InvalidTensor, match="'x' cannot be an array of float32"):
        client.predict("half", {"x": [[1], [1, 2]]})
    with pytest.raises(InvalidSetting, match="Give one of them"):
        client.predict("half", {"x": [1]}, version=1, label="stable")
    with pytest.raises(InvalidSetting, match="Give the name"):
        client.predict("", {"x": [1]})


@pytest.mark.parametrize(("protocol", "api"), APIS)
def test_calls_on_an_event_loop_run_at_the_same_time(
    server: LocalServer, protocol: Any, api: str
) -> None:
    async def predict() -> list[float]:
        async with server.async_client(protocol, api=api) as client:
            assert await client.is_ready("half")
            assert "serving_default" in await client.signatures("half")
            assert len(await client.versions("half")) == 1
            calls = [client.predict("half", {"x": [value]}) for value in range(8)]
            return [float(outputs["y"][0]) for outputs in await asyncio.gather(*calls)]

    assert asyncio.run(predict()) == [value / 2 + 2 for value in range(8)]


@pytest.mark.slow
def test_one_process_loads_the_messages_of_the_client_and_of_tensorflow_serving(
    server: LocalServer,
) -> None:
    from tensorflow_serving.apis import predict_pb2

    assert predict_pb2.PredictRequest().DESCRIPTOR.full_name == "tensorflow.serving.PredictRequest"
    with server.client("grpc") as client:
        assert client.predict("half", {"x": [1]})["y"].tolist() == [2.5]
