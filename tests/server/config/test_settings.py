"""Invalid settings are refused before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from server.config.settings import Settings
from tpuserve.errors import InvalidSetting

GOOD: dict[str, Any] = {"model_base_path": Path("/models/half")}


def test_defaults_are_tensorflow_servings_ports_with_rest_on() -> None:
    settings = Settings(**GOOD)
    assert (settings.port, settings.rest_api_port, settings.host) == (8500, 8501, "0.0.0.0")
    assert settings.model_name == "default"


def test_one_face_may_be_off() -> None:
    assert Settings(**GOOD, port=0).port == 0
    assert Settings(**GOOD, rest_api_port=0).rest_api_port == 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"port": 8501}, "--port and --rest_api_port are both 8501. Give each"),
        ({"port": 0, "rest_api_port": 0}, "both 0, so both are off"),
        ({"port": 65536}, "--port is 65536. Give a port from 1 to 65535"),
        ({"rest_api_port": -1}, "--rest_api_port is -1"),
        ({"host": ""}, "--host is empty"),
        ({"processes": 0}, "--processes is 0. Give"),
        (
            {"processes": 2, "enable_model_control": True},
            "--processes is 2, and --enable_model_control lets a client load models",
        ),
        ({"model_name": ""}, "--model_name is empty"),
        (
            {"model_base_path": Path("models/half")},
            "must be an absolute path \\(got 'models/half'\\)",
        ),
        (
            {"model_base_path": Path("")},
            "--model_base_path must be an absolute path \\(got empty\\)",
        ),
        ({"model_base_path": None}, "there is no model to serve: --model_base_path and"),
        (
            {"batching_parameters_file": "/b"},
            "--batching_parameters_file supplied without specifying --enable_batching",
        ),
        (
            {"enable_per_model_batching_parameters": True},
            "supplied without specifying --enable_batching",
        ),
        (
            {
                "tensorflow_session_parallelism": 1,
                "tensorflow_intra_op_parallelism": 1,
                "tensorflow_inter_op_parallelism": 1,
            },
            "are all set",
        ),
        ({"max_request_bytes": -1}, "--max_request_bytes is -1. Give a number that is at least 0"),
        ({"otlp_endpoint": "collector:4317"}, "'collector:4317', which is no URL of a host. Give"),
        ({"predict_route": "predict"}, "--predict_route is 'predict'. Give a path, as /predict."),
        (
            {"predict_route": "/a", "health_route": "/a"},
            "--predict_route and --health_route are both /a. Give each a path of its own.",
        ),
        ({"otlp_endpoint": "http://"}, "'http://', which is no URL of a host"),
        ({"otlp_endpoint": "http://h:port"}, "'http://h:port', which is no URL of a host"),
    ],
)
def test_impossible_value_is_refused_by_its_flag(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        Settings(**{**GOOD, **wrong})


def test_config_file_goes_without_a_base_path() -> None:
    assert Settings(model_config_file="/models.config").model_base_path is None


def test_flags_that_a_platform_config_file_replaces_are_not_checked() -> None:
    settings = Settings(**GOOD, platform_config_file="/p", batching_parameters_file="/b")
    assert settings.batching_parameters_file == "/b"


def test_socket_goes_without_a_port() -> None:
    assert Settings(**GOOD, port=0, rest_api_port=0, grpc_socket_path="/s").port == 0
