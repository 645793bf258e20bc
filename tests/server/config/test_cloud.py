"""Vertex AI and SageMaker configure a server with environment variables."""

from collections.abc import Mapping

import pytest

from server.config.cloud import flags_from_environment
from tpuserve.errors import InvalidSetting

SAGEMAKER = {
    "model_base_path": "/opt/ml/model",
    "predict_route": "/invocations",
    "health_route": "/ping",
    "rest_api_port": 8080,
}


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"PATH": "/bin"}, {}),
        ({"AIP_HTTP_PORT": "8080"}, {}),
        ({"AIP_PREDICT_ROUTE": "/p"}, {"predict_route": "/p"}),
        (
            {
                "AIP_PREDICT_ROUTE": "/p",
                "AIP_HEALTH_ROUTE": "/h",
                "AIP_HTTP_PORT": "8080",
                "AIP_STORAGE_URI": "gs://models/half",
            },
            {
                "model_base_path": "gs://models/half",
                "predict_route": "/p",
                "health_route": "/h",
                "rest_api_port": 8080,
            },
        ),
        ({"SAGEMAKER_REGION": "eu-west-1"}, SAGEMAKER),
        ({"SAGEMAKER_BIND_TO_PORT": "9090"}, SAGEMAKER | {"rest_api_port": 9090}),
        (
            {"SAGEMAKER_MULTI_MODEL": "true"},
            {"sagemaker_multi_model": True, "health_route": "/ping", "rest_api_port": 8080},
        ),
        ({"SAGEMAKER_MULTI_MODEL": "false"}, SAGEMAKER),
    ],
)
def test_variables_set_flags(
    environment: Mapping[str, str], flags: Mapping[str, str | int]
) -> None:
    assert flags_from_environment(environment) == flags


def test_port_that_is_no_number_is_refused_by_its_variable() -> None:
    with pytest.raises(InvalidSetting, match="AIP_HTTP_PORT is 'http'. Set it to a port"):
        flags_from_environment({"AIP_PREDICT_ROUTE": "/p", "AIP_HTTP_PORT": "http"})
