"""The clients of the Open Inference Protocol find a signature by its name, and the default one."""

import grpc
import pytest

from tests.tpuserve.client.reply_servers import Answer, over_grpc, over_http
from tpuserve.client import Client
from tpuserve.errors import InvalidInput, InvalidReply
from tpuserve.proto.open_inference import message_type

METADATA = Answer(
    200, b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}], "outputs": []}'
)
CONFIG = Answer(200, b'{"parameters": {"TF_SIGNATURE_DEF": {"string_value": "only"}}}')
MESSAGE = message_type("ModelMetadataResponse")(name="half")
MESSAGE.inputs.add(name="x", datatype="FP32", shape=[-1])
CONFIG_MESSAGE = message_type("ModelConfigResponse")()
CONFIG_MESSAGE.config.parameters["TF_SIGNATURE_DEF"].string_value = "only"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (CONFIG, "only"),
        (Answer(200, b'{"name": "half"}'), "serving_default"),
        (Answer(404, b"{}"), "serving_default"),
    ],
)
def test_configuration_names_the_default_signature_over_http(config: Answer, name: str) -> None:
    with over_http(METADATA, config) as server, Client(server.url, api="v2") as client:
        signatures = client.signatures("half")
        assert {name: str(known.inputs["x"]) for name, known in signatures.items()} == {
            name: "float32 [?]"
        }
        assert [path for path, _, _ in server.requests] == [
            "/v2/models/half",
            "/v2/models/half/config",
        ]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (CONFIG_MESSAGE.SerializeToString(), "only"),
        (b"", "serving_default"),
        (grpc.StatusCode.UNIMPLEMENTED, "serving_default"),
    ],
)
def test_configuration_names_the_default_signature_over_grpc(
    config: bytes | grpc.StatusCode, name: str
) -> None:
    answers = (MESSAGE.SerializeToString(), config)
    with over_grpc(*answers) as handler, Client(handler.url, api="v2") as client:
        assert list(client.signatures("half")) == [name]


@pytest.mark.parametrize("body", [b"[]", b'{"parameters": {"TF_SIGNATURE_DEF": "only"}}', b"{"])
def test_configuration_of_another_form_is_said(body: bytes) -> None:
    with (
        over_http(METADATA, Answer(200, body)) as server,
        Client(server.url, api="v2") as client,
        pytest.raises(InvalidReply),
    ):
        client.signatures("half")


def test_named_signature_is_asked_for_once_over_http() -> None:
    with over_http(METADATA) as server, Client(server.url, api="v2") as client:
        for _ in range(2):
            assert str(client.signature("half", "a&b").inputs["x"]) == "float32 [?]"
        assert [path for path, _, _ in server.requests] == [
            "/v2/models/half?signature_name=a%26b",
        ]


def test_only_the_default_signature_is_described_over_grpc() -> None:
    answers = (CONFIG_MESSAGE.SerializeToString(), MESSAGE.SerializeToString())
    with over_grpc(*answers) as handler, Client(handler.url, api="v2") as client:
        assert str(client.signature("half", "only").inputs["x"]) == "float32 [?]"
    with (
        over_grpc(*answers) as handler,
        Client(handler.url, api="v2") as client,
        pytest.raises(InvalidInput, match="only the signature 'only' .* arrays for 'two'"),
    ):
        client.predict("half", {"x": [1]}, signature="two")


def test_sparse_tensors_are_named_as_such() -> None:
    metadata = METADATA.body.replace(b"FP32", b"COMPOSITE_FP32")
    with over_http(Answer(200, metadata)) as server, Client(server.url, api="v2") as client:
        assert str(client.signature("half", "a").inputs["x"]) == "sparse or composite float32 [?]"
