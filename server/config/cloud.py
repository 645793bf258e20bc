"""Converts the environment variables of Vertex AI and Amazon SageMaker to flags of the server.

Sources: https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements,
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html,
https://docs.aws.amazon.com/sagemaker/latest/dg/inference-pipeline-real-time.html,
https://docs.aws.amazon.com/sagemaker/latest/dg/build-multi-model-build-container.html.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tpuserve.errors import InvalidSetting

# SageMaker's interface to a container: the directory in which SageMaker puts the model, the URL
# paths that it calls to predict and to check the health, and its default port.
_SAGEMAKER_MODEL = "/opt/ml/model"
_SAGEMAKER_PREDICT, _SAGEMAKER_HEALTH, _SAGEMAKER_PORT = "/invocations", "/ping", 8080
_SAGEMAKER_VARIABLES = _PORT, _PORT_RANGE, _MULTI_MODEL = (
    "SAGEMAKER_BIND_TO_PORT",
    "SAGEMAKER_SAFE_PORT_RANGE",
    "SAGEMAKER_MULTI_MODEL",
)
_VERTEX_FLAGS = {
    "AIP_STORAGE_URI": "model_base_path",
    "AIP_PREDICT_ROUTE": "predict_route",
    "AIP_HEALTH_ROUTE": "health_route",
    "AIP_HTTP_PORT": "rest_api_port",
}
_MAX_PORT = 65535


class VariableFlag(NamedTuple):
    """The value of a flag, and the environment variable that sets the flag."""

    value: str | int
    variable: str


def flags_from_environment(environment: Mapping[str, str]) -> dict[str, VariableFlag]:
    """Return the flags (name → value) that the environment variables of a cloud service imply.

    The function reads only the variables that the services document for containers that serve
    models. It ignores variables with an empty value.
    """
    return _read_vertex(environment) or _read_sagemaker(environment)


def _read_vertex(environment: Mapping[str, str]) -> dict[str, VariableFlag]:
    chosen = {}
    for variable, name in _VERTEX_FLAGS.items():
        if text := environment.get(variable):
            value = _read_port(variable, text) if name == "rest_api_port" else text
            chosen[name] = VariableFlag(value, variable)
    return chosen


def _read_sagemaker(environment: Mapping[str, str]) -> dict[str, VariableFlag]:
    variables = [name for name in _SAGEMAKER_VARIABLES if environment.get(name)]
    if not variables:
        return {}
    variable = variables[0]
    chosen = {
        "health_route": VariableFlag(_SAGEMAKER_HEALTH, variable),
        "rest_api_port": VariableFlag(_SAGEMAKER_PORT, variable),
    }
    if environment.get(_MULTI_MODEL, "").lower() == "true":
        chosen["sagemaker_multi_model"] = VariableFlag(True, _MULTI_MODEL)
    else:
        chosen["model_base_path"] = VariableFlag(_SAGEMAKER_MODEL, variable)
        chosen["predict_route"] = VariableFlag(_SAGEMAKER_PREDICT, variable)
    if text := environment.get(_PORT):
        chosen["rest_api_port"] = VariableFlag(_read_port(_PORT, text), _PORT)
    if text := environment.get(_PORT_RANGE):
        # Use a port of the range for gRPC: SageMaker has reserved the range for this container, and
        # other containers of the same inference pipeline may use the ports outside of it.
        ports = _read_ports(_PORT_RANGE, text)
        rest_port = chosen["rest_api_port"].value
        if free := [port for port in ports if port != rest_port]:
            chosen["port"] = VariableFlag(free[0], _PORT_RANGE)
    return chosen


def _read_port(variable: str, text: str) -> int:
    if not _is_port(text):
        raise InvalidSetting(
            f"the environment variable {variable} is {text!r}. Set it to a port, as 8080."
        )
    return int(text)


def _read_ports(variable: str, text: str) -> range:
    first, _, last = text.partition("-")
    if not (_is_port(first) and _is_port(last) and int(first) <= int(last)):
        raise InvalidSetting(
            f"the environment variable {variable} is {text!r}. Set it to a range of ports, as "
            f"9000-9999."
        )
    return range(int(first), int(last) + 1)


def _is_port(text: str) -> bool:
    return bool(re.fullmatch("[0-9]{1,5}", text)) and 0 < int(text) <= _MAX_PORT
