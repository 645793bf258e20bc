"""Reads the arguments PATH and NAME=PATH of `tpuserve serve`."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from server.config.model_config import ModelConfig
from tpuserve.errors import InvalidSetting
from tpuserve.files.uris import absolute_path_or_uri

_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.*)", re.DOTALL)
# What the URL of a model may not have in its name.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def parse_model_paths(arguments: Sequence[str]) -> tuple[ModelConfig, ...]:
    """Return the models that the arguments name; without NAME=, the path gives the name.

    Raises:
      InvalidSetting: an argument has no path, a path has no name, or two models have the same name.
    """
    models: dict[str, ModelConfig] = {}
    for argument in arguments:
        match = _NAMED.fullmatch(argument)
        name, path = match.groups() if match else ("", argument)
        if not path:
            raise InvalidSetting(
                f"the argument {argument!r} names no path. Give the path of a model, such as "
                f"/models/half, or NAME=/models/half."
            )
        path = absolute_path_or_uri(path)
        name = name or default_name(path)
        if not name:
            raise InvalidSetting(f"{path} gives the model no name. Give one: NAME={path}")
        if name in models:
            raise InvalidSetting(
                f"{models[name].base_path} and {path} are both named {name}. Give one of them "
                f"another name: NAME={path}"
            )
        models[name] = ModelConfig(name, path)
    return tuple(models.values())


def default_name(path: str) -> str:
    """Return the last name in a path or URI that is no version number, without .keras.

    Other characters than letters, digits, "_", "." and "-" become "_". The name is empty if the
    path has none.
    """
    _, _, address = path.rpartition("://")
    for part in reversed(PurePosixPath(address.partition("?")[0]).parts):
        stem = part.removesuffix(".keras")
        if not stem.isdecimal():
            return _NOT_IN_NAMES.sub("_", stem).strip("_.")
    return ""
