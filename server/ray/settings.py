"""Makes the settings of a replica from the flags of a deployment."""

import os
from collections.abc import Mapping
from typing import Any

from server.config import flags
from server.config.flags import FLAGS, Flag
from server.config.settings import AUTO, Settings
from tpuserve.errors import InvalidSetting

# The titles of the sections of flags that have an effect in a replica. A replica loads and runs
# models, but has no REST or gRPC server.
_SECTIONS = ("Models", "Loading", "Batching", "TensorFlow")
# The flags in `_SECTIONS` that have no effect in a replica: a replica does not read the platform
# config file, and has no queues in which requests wait for a model.
_WITHOUT_EFFECT = frozenset(
    ("platform_config_file", "lazy_load", "lazy_load_timeout", "max_model_memory")
)
# The flags outside of `_SECTIONS` that have an effect in a replica: they concern the requests that
# a replica answers, and not the connections of clients.
_OF_OTHER_SECTIONS = frozenset(
    (
        *("enable_serialization_as_tensor_content", "enable_signature_method_name_check"),
        *("default_request_timeout_ms", "max_request_bytes", "max_request_memory_bytes"),
    )
)
EFFECTIVE_FLAGS = _OF_OTHER_SECTIONS.union(
    flag.name
    for section in flags.SECTIONS
    if section.title in _SECTIONS
    for flag in section.flags
    if flag.name not in _WITHOUT_EFFECT
)
"""The names of the flags that a deployment may have."""

# Flag without effect in a replica → option of Ray with the same purpose, for the text of an error.
_OPTIONS = {
    "max_queue": "max_queued_requests",
    "max_requests_in_flight": "max_ongoing_requests",
    "shutdown_grace_seconds": "graceful_shutdown_timeout_s",
}
# Type of a flag (`Flag.value_type`) → the Python types of valid values, and the words for these
# values in the text of an error.
_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "bool": (bool, "true or false"),
    "auto": (bool, "true, false or auto"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "text": (str, "text"),
}


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings of a replica, which listens on no port.

    Args:
      values: flag name → value; None for the default of the flag.

    Raises:
      BasePathNotFound: the base path is a URI of a file system that the server cannot read.
    """
    unknown = sorted(set(values) - set(FLAGS))
    if unknown:
        raise InvalidSetting(
            f"the deployment has the flags {', '.join(unknown)}, which `tpuserve serve` does not "
            f"have. Run `tpuserve serve --help` for their names."
        )
    refused = sorted(set(values) - EFFECTIVE_FLAGS)
    if refused:
        raise InvalidSetting(_refusal(refused))
    flag_values = {
        name: _check_type(FLAGS[name], value) for name, value in values.items() if value is not None
    }
    return flags.settings_from_flags({**flag_values, "rest_api_port": 0})


def _refusal(names: list[str]) -> str:
    options = [
        f" In place of {name}, give {_OPTIONS[name]} in `options`."
        for name in names
        if name in _OPTIONS
    ]
    return (
        f"the deployment has the flags {', '.join(names)}, which have no effect: Ray receives the "
        f"requests, and a replica only runs models. Leave them out.{''.join(options)}"
    )


def _check_type(flag: Flag, value: Any) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    types, description = _TYPES[flag.value_type]
    if value == flag.value_type == AUTO:
        return value
    if not isinstance(value, types) or isinstance(value, bool) != (types is bool):
        raise InvalidSetting(
            f"the deployment has the flag {flag.name}={value!r}. Give {description}."
        )
    return value
