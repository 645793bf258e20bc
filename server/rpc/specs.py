"""The ModelSpec of a request: which model, which version."""

from typing import Any

from server.dataplane import Target
from tpuserve.errors import InvalidInput


def read_target(request: Any) -> Target:
    """What a request with a `model_spec` is addressed to.

    Raises:
      InvalidInput: no model_spec, no name in it, or a label that no version has.
    """
    name, version = read_name_and_version(request)
    label = request.model_spec.version_label
    if label:
        raise InvalidInput(f"Unrecognized servable version label: {label}")
    return Target(name, version, request.model_spec.signature_name)


def read_name_and_version(request: Any) -> tuple[str, int | None]:
    """The model of a request, and the version where it asks for one; labels are not looked at.

    Raises:
      InvalidInput: no model_spec, or no name in it.
    """
    if not request.HasField("model_spec"):
        raise InvalidInput("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise InvalidInput("ModelSpec has no name specified.")
    return spec.name, spec.version.value if spec.HasField("version") else None
