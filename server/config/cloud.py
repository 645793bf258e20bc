"""Converts the environment variables of Vertex AI and Amazon SageMaker to flags of the server.

Sources: https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements,
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html.
"""

from collections.abc import Mapping

from tpuserve.errors import InvalidSetting

# SageMaker's interface to a container: the directory in which SageMaker puts the model, the URL
# paths that it calls to predict and to check the health, and its default port.
_SAGEMAKER_MODEL = "/opt/ml/model"
_SAGEMAKER_PREDICT, _SAGEMAKER_HEALTH, _SAGEMAKER_PORT = "/invocations", "/ping", "8080"
_VERTEX_PREDICT = "AIP_PREDICT_ROUTE"


def flags_from_environment(environment: Mapping[str, str]) -> dict[str, str | int]:
    """Return the flags (name → value) that the environment variables of a cloud service imply.

    The result is empty outside of Vertex AI and SageMaker.

    Args:
      environment: the environment variables of the process.

    Raises:
      InvalidSetting: the variable with the port is not a number.
    """
    if environment.get(_VERTEX_PREDICT):
        named: dict[str, str | int] = {
            "model_base_path": environment.get("AIP_STORAGE_URI", ""),
            "predict_route": environment[_VERTEX_PREDICT],
            "health_route": environment.get("AIP_HEALTH_ROUTE", ""),
        }
        if "AIP_HTTP_PORT" in environment:
            named["rest_api_port"] = _read_port(environment, "AIP_HTTP_PORT", "")
        return {name: value for name, value in named.items() if value}
    if environment.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true":
        return {
            "sagemaker_multi_model": True,
            "health_route": _SAGEMAKER_HEALTH,
            "rest_api_port": _read_port(environment, "SAGEMAKER_BIND_TO_PORT", _SAGEMAKER_PORT),
        }
    if any(name.startswith("SAGEMAKER_") for name in environment):
        return {
            "model_base_path": _SAGEMAKER_MODEL,
            "predict_route": _SAGEMAKER_PREDICT,
            "health_route": _SAGEMAKER_HEALTH,
            "rest_api_port": _read_port(environment, "SAGEMAKER_BIND_TO_PORT", _SAGEMAKER_PORT),
        }
    return {}


def _read_port(environment: Mapping[str, str], name: str, default: str) -> int:
    """Return the port in an environment variable; `default` if it is missing or empty."""
    text = environment.get(name) or default
    if not (text.isascii() and text.isdigit()):
        raise InvalidSetting(f"the environment variable {name} is {text!r}. Set it to a port.")
    return int(text)
