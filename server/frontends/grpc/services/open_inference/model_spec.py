"""Reads the model and the version that a request of the Open Inference Protocol names."""

from server.dataplane import ModelSpec
from tpuserve.errors import InvalidInput

_MAX_VERSION = 2**63 - 1


def decode_model_spec(name: str, version: str) -> ModelSpec:
    """Return the model and the version that a request names.

    Args:
      version: the version as a decimal number; "" for the latest version.

    Raises:
      InvalidInput: the name is empty, or the version is not a whole number from 0 to 2**63 - 1.
    """
    if not name:
        raise InvalidInput("the request names no model. Send its name.")
    if not version:
        return ModelSpec(name, is_open_inference=True)
    # Limit the number of digits, because `int` would take long to convert a long text.
    is_number = version.isascii() and version.isdigit() and len(version) <= 32
    if not is_number or int(version) > _MAX_VERSION:
        raise InvalidInput(
            f"the version is {version[:32]!r}. Send a whole number such as 1, or no version for "
            f"the latest."
        )
    return ModelSpec(name, int(version), is_open_inference=True)
