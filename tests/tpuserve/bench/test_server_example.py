"""Strings that a model parses come from the server's own example of a request."""

import json
from collections.abc import Iterator

import grpc
import pytest

from tests.server.frontends.rest.console.console_server import ConsoleServer
from tests.tpuserve.client.reply_servers import Answer, over_grpc, over_http
from tpuserve.bench import benchmark
from tpuserve.bench.benchmark import InputChoice, Target
from tpuserve.bench.load import Load
from tpuserve.bench.windows import Procedure
from tpuserve.errors import ServerFailure
from tpuserve.proto.open_inference import message_type

BRIEFLY = Procedure(window_s=0.05, max_windows=500, tolerance=1000, warm_up_s=0.01)
METADATA = Answer(
    200, b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1]}], "outputs": []}'
)


def openapi(examples: object) -> Answer:
    """Return the OpenAPI document of a server with examples of Predict requests."""
    content = {"application/json": {"examples": examples}}
    paths = {"/v1/models/other:predict": {"post": {"requestBody": {"content": content}}}}
    return Answer(200, json.dumps({"paths": paths}).encode())


INCOMPLETE = {"x-incomplete": True, "value": {"inputs": {"x": ["Replace this text"]}}}


def count_answers(target: Target, choice: InputChoice) -> int:
    requests = benchmark.choose_requests(target, choice)
    (result,) = benchmark.run_benchmark(target, requests, [Load(concurrency=2)], BRIEFLY)
    assert result.num_errors == 0
    return result.num_requests


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("forms")
    # TensorFlow is imported here, because the other tests of this file need no TensorFlow.
    from tests.server.frontends.rest.console import exports

    exports.export(directory / "forms" / "1")
    with ConsoleServer(directory, {"forms": directory / "forms"}) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["age_next_year", "picture_height"])
def test_a_model_that_parses_examples_or_decodes_pictures_answers_all_requests(
    url: str, signature: str
) -> None:
    target = Target(url, "forms", signature_name=signature)
    choice = InputChoice(batch_size=3)
    (request,) = benchmark.choose_requests(target, choice).inputs
    (array,) = request.inputs.values()
    assert array.shape == (3,)
    assert len({bytes(element) for element in array}) == 1
    assert count_answers(target, choice) > 0


def test_numbers_stay_random_and_differ_between_requests(url: str) -> None:
    requests = benchmark.choose_requests(Target(url, "forms"), InputChoice()).inputs
    assert len({float(request.inputs["x"][0]) for request in requests}) == len(requests) > 1


@pytest.mark.parametrize(
    "document",
    [
        Answer(404, b"{}"),
        Answer(200, b"<html>"),
        Answer(200, b'{"paths": []}'),
        Answer(200, b'{"paths": ' + b"[" * 100_000),
        openapi({"serving_default": INCOMPLETE}),
    ],
)
def test_server_without_a_valid_example_gets_random_words(document: Answer) -> None:
    with over_http(METADATA, document) as server:
        target = Target(server.url, "other", "v2")
        requests = benchmark.choose_requests(target, InputChoice()).inputs
        assert len({bytes(request.inputs["x"][0]) for request in requests}) > 1
        assert [path for path, _, _ in server.requests] == ["/v2/models/other", "/openapi.json"]


def test_only_signature_needs_no_name() -> None:
    examples = {"only": {"value": {"inputs": {"x": ["words"]}}}}
    with over_http(METADATA, openapi(examples)) as server:
        target = Target(server.url, "other", "v2")
        (request,) = benchmark.choose_requests(target, InputChoice(batch_size=2)).inputs
        assert request.inputs["x"].tolist() == [b"words", b"words"]


def test_an_error_of_random_words_names_the_options() -> None:
    refused = Answer(400, b'{"error": "Could not parse example input"}')
    with (
        over_http(METADATA, Answer(404), refused) as server,
        pytest.raises(ServerFailure, match="Could not parse .* --input .* or --request-log"),
    ):
        count_answers(Target(server.url, "other", "v2"), InputChoice())


def test_an_error_over_grpc_says_where_the_example_is() -> None:
    metadata = message_type("ModelMetadataResponse")(name="other")
    metadata.inputs.add(name="x", datatype="BYTES", shape=[-1])
    with (
        over_grpc(metadata.SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT) as server,
        pytest.raises(ServerFailure, match="--input .* its http:// URL has an example"),
    ):
        count_answers(Target(server.url, "other", "v2"), InputChoice())


def test_a_shape_that_the_user_gives_is_sent_without_a_question() -> None:
    with over_http(METADATA, Answer(200, b'{"outputs": []}')) as server:
        assert count_answers(Target(server.url, "other", "v2"), InputChoice(shapes={"x": (2,)})) > 0
        assert "/openapi.json" not in {path for path, _, _ in server.requests}
