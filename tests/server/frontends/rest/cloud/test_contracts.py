"""The container contracts of Vertex AI, SageMaker and KServe for one model.

Sources: https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements,
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html,
https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol.
"""

import json
from pathlib import Path

import pytest

from server.admission.admission import AdmissionController
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask

VERTEX = "/v1/endpoints/12/deployedModels/34:predict", "/v1/endpoints/12/deployedModels/34"
SAGEMAKER = "/invocations", "/ping"
both_services = pytest.mark.parametrize(
    ("predict", "health"), [VERTEX, SAGEMAKER], ids=["Vertex AI", "SageMaker"]
)


def settings(**flags: object) -> Settings:
    return Settings(Path("/models/half"), "half", **flags)  # type: ignore[arg-type]


@both_services
def test_predictions_are_answered_at_the_path_of_the_service(
    serve: Serve, dataplane: DataPlane, predict: str, health: str
) -> None:
    flags = settings(predict_route=predict, health_route=health)
    address = serve(build_rest_app(dataplane, flags))
    # Vertex AI passes the parameters of a request on, which a model may ignore.
    body = json.dumps({"instances": [1.0, 2.0], "parameters": {"confidence": 0.5}}).encode()
    reply, answer = ask(address, "POST", predict, body)
    assert (reply.status, reply.getheader("content-type")) == (200, "application/json")
    assert json.loads(answer) == {"predictions": [2.5, 3.0]}
    reply, answer = ask(address, "POST", predict, b'{"instances": "text"}')
    assert reply.status == 400
    assert json.loads(answer).keys() == {"error"}
    # The other paths of the server are still there.
    assert ask(address, "POST", "/v1/models/half:predict", body)[0].status == 200


@both_services
def test_health_is_ok_without_a_body_once_the_model_is_available(
    serve: Serve, dataplane: DataPlane, predict: str, health: str
) -> None:
    admission = AdmissionController()
    flags = settings(predict_route=predict, health_route=health)
    address = serve(build_rest_app(dataplane, flags, admission=admission))
    reply, answer = ask(address, "GET", health)
    assert (reply.status, answer) == (503, b"not ready: the server is starting\n")
    admission.mark_ready()
    reply, answer = ask(address, "GET", health)
    assert (reply.status, answer) == (200, b"")


def test_other_methods_and_longer_paths_are_refused(serve: Serve, dataplane: DataPlane) -> None:
    address = serve(build_rest_app(dataplane, settings(predict_route="/invocations")))
    reply, answer = ask(address, "GET", "/invocations")
    assert (reply.status, json.loads(answer)["error"]) == (
        400,
        "/invocations does not take the method GET. Send POST.",
    )
    assert ask(address, "POST", "/invocations/more", b"{}")[0].status == 404


def test_services_paths_are_absent_without_their_flags(serve: Serve, dataplane: DataPlane) -> None:
    address = serve(build_rest_app(dataplane, settings()))
    assert ask(address, "POST", "/invocations", b"{}")[0].status == 404
    assert ask(address, "GET", "/ping")[0].status == 404


def test_list_of_models_has_only_names_for_kserve(serve: Serve, dataplane: DataPlane) -> None:
    address = serve(build_rest_app(dataplane, settings(kserve_model_list=True)))
    assert json.loads(ask(address, "GET", "/v1/models")[1]) == {"models": ["half"]}
    address = serve(build_rest_app(dataplane, settings()))
    (entry,) = json.loads(ask(address, "GET", "/v1/models")[1])["models"]
    assert entry["name"] == "half"
