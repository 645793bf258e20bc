"""Vertex AI and SageMaker configure a server with environment variables."""

from collections.abc import Mapping

import pytest

from server.config.cloud import flags_from_environment
from tpuserve.errors import InvalidSetting

PORT, PORT_RANGE = "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_SAFE_PORT_RANGE"
MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"


def sagemaker(variable: str) -> dict[str, tuple[str | int, str]]:
    """Return the flags of SageMaker if this variable alone is set."""
    return {
        "model_base_path": ("/opt/ml/model", variable),
        "predict_route": ("/invocations", variable),
        "health_route": ("/ping", variable),
        "rest_api_port": (8080, variable),
    }


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"PATH": "/bin"}, {}),
        ({"AIP_HTTP_PORT": "8080"}, {"rest_api_port": (8080, "AIP_HTTP_PORT")}),
        ({"AIP_PREDICT_ROUTE": "/p"}, {"predict_route": ("/p", "AIP_PREDICT_ROUTE")}),
        (
            {
                "AIP_PREDICT_ROUTE": "/p",
                "AIP_HEALTH_ROUTE": "/h",
                "AIP_HTTP_PORT": "8080",
                "AIP_STORAGE_URI": "gs://models/half",
                PORT: "9090",
            },
            {
                "model_base_path": ("gs://models/half", "AIP_STORAGE_URI"),
                "predict_route": ("/p", "AIP_PREDICT_ROUTE"),
                "health_route": ("/h", "AIP_HEALTH_ROUTE"),
                "rest_api_port": (8080, "AIP_HTTP_PORT"),
            },
        ),
        ({PORT: "9090"}, sagemaker(PORT) | {"rest_api_port": (9090, PORT)}),
        ({PORT_RANGE: "9000-9999"}, sagemaker(PORT_RANGE) | {"port": (9000, PORT_RANGE)}),
        # 8080 is the port of REST.
        ({PORT_RANGE: "8080-8090"}, sagemaker(PORT_RANGE) | {"port": (8081, PORT_RANGE)}),
        ({PORT_RANGE: "8080-8080"}, sagemaker(PORT_RANGE)),
        (
            {MULTI_MODEL: "true", PORT: "9090"},
            {
                "sagemaker_multi_model": (True, MULTI_MODEL),
                "health_route": ("/ping", PORT),
                "rest_api_port": (9090, PORT),
            },
        ),
        ({MULTI_MODEL: "false"}, sagemaker(MULTI_MODEL)),
    ],
)
def test_variables_of_the_contracts_set_flags(
    environment: Mapping[str, str], flags: Mapping[str, tuple[str | int, str]]
) -> None:
    assert flags_from_environment(environment) == flags


def test_variables_of_notebooks_and_training_jobs_set_no_flag() -> None:
    environment = {
        "SAGEMAKER_REGION": "eu-west-1",
        "SAGEMAKER_LOG_LEVEL": "20",
        "SAGEMAKER_JOB_NAME": "train",
        "AIP_MODEL_DIR": "gs://bucket/model",
        "AIP_TRAINING_DATA_URI": "gs://bucket/data",
        PORT: "",
    }
    assert flags_from_environment(environment) == {}


@pytest.mark.parametrize(
    ("variable", "text", "advice"),
    [
        ("AIP_HTTP_PORT", "http", "Set it to a port"),
        ("AIP_HTTP_PORT", "0", "Set it to a port"),
        (PORT, "65536", "Set it to a port"),
        (PORT_RANGE, "9000", "Set it to a range of ports"),
        (PORT_RANGE, "9000-x", "Set it to a range of ports"),
        (PORT_RANGE, "9999-9000", "Set it to a range of ports"),
    ],
)
def test_what_is_no_port_is_refused_by_its_variable(variable: str, text: str, advice: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{variable} is '{text}'. {advice}"):
        flags_from_environment({variable: text})
