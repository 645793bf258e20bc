"""Over gRPC, a model without "serving_default" is described and run by its only signature."""

from pathlib import Path
from typing import Any

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.dataplane.test_default_signature import OnlyModel
from tests.server.frontends.grpc import clients


def test_only_signature_is_described_and_run() -> None:
    from tpuserve.proto.open_inference import message_type

    manager = Manager(lambda directory: OnlyModel())
    aspire(manager, "half", {3: Path("/models/half/3")})

    def call(method: str, **fields: Any) -> Any:
        stub = client.channel.unary_unary(
            f"/inference.GRPCInferenceService/{method}",
            message_type(f"{method}Request").SerializeToString,
            message_type(f"{method}Response").FromString,
        )
        return stub(message_type(f"{method}Request")(**fields), timeout=10)

    with clients.serving(DataPlane(manager)) as server, clients.connect(server.address) as client:
        (x,) = call("ModelMetadata", name="half").inputs
        assert (x.name, x.datatype) == ("x", "FP32")
        parameters = call("ModelConfig", name="half").config.parameters
        assert parameters["TF_SIGNATURE_DEF"].string_value == "only"
        contents = {"fp32_contents": [1, 5]}
        tensor = {"name": "x", "datatype": "FP32", "shape": [2], "contents": contents}
        (y,) = call("ModelInfer", model_name="half", inputs=[tensor]).outputs
        assert list(y.contents.fp32_contents) == [2.5, 4.5]
    manager.close(1)
