"""Reads the model config file: converts ModelServerConfig messages to immutable dataclasses."""

import dataclasses
from pathlib import Path
from typing import Any

from server.config import messages, textproto
from server.config.model_config import (
    ENGINES,
    PLATFORM,
    TFRECORD,
    AllPolicy,
    LatestPolicy,
    ModelConfig,
    ModelServerConfig,
    QueueLimits,
    RequestLogging,
    SpecificPolicy,
    VersionPolicy,
)
from tpuserve.errors import InvalidConfig

_MESSAGE = "ModelServerConfig"


def is_empty(text: str) -> bool:
    """Return whether a configuration text has only comments and blank lines."""
    return not any(line.partition("#")[0].strip() for line in text.splitlines())


def parse_model_config(text: str, path: Path) -> ModelServerConfig:
    """Parse the text of a model config file."""
    message = textproto.parse_text(
        text, messages.new_message(_MESSAGE), path, messages.default_pool()
    )
    if message.WhichOneof("config") == "custom_model_config":
        raise InvalidConfig(
            f"{path} has a custom_model_config, and only a model_config_list can be served. List "
            f"the models in a model_config_list."
        )
    return _from_list(message.model_config_list)


def from_reload_request(message: Any) -> ModelServerConfig:
    """Convert the ModelServerConfig message of a HandleReloadConfigRequest.

    Args:
      message: a message with the wire format of ModelServerConfig, of any Python class.
    """
    message = messages.new_message(_MESSAGE).FromString(message.SerializeToString())
    if message.WhichOneof("config") != "model_config_list":
        raise InvalidConfig(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported"
        )
    config = _from_list(message.model_config_list)
    # Refuse settings of request logs in a reload request. Otherwise a client that may reload the
    # configuration could choose the files that the server writes.
    for model in config.models:
        if model.logging is not None:
            raise InvalidConfig(
                f"logging_config of model {model.name}: a reload request cannot configure request "
                f"logs; the file of --model_config_file can. Remove logging_config, or put it "
                f"into that file."
            )
    return config


def _from_list(message: Any) -> ModelServerConfig:
    return ModelServerConfig(tuple(_model_config(model) for model in message.config))


def _model_config(message: Any) -> ModelConfig:
    logging = message.logging_config if message.HasField("logging_config") else None
    return ModelConfig(
        name=message.name,
        base_path=message.base_path,
        policy=_version_policy(message),
        labels=dict(message.version_labels),
        logging=None if logging is None else _request_logging(logging),
        platform=_platform(message),
        limits=_queue_limits(message),
        versions_required=(
            message.fail_if_no_model_versions_found
            if message.HasField("fail_if_no_model_versions_found")
            else None
        ),
        engine=_engine(message),
        pinned=message.pinned,
    )


def _engine(message: Any) -> str:
    if message.engine not in ("", *ENGINES):
        raise InvalidConfig(
            f"engine of model {message.name} is {message.engine!r}. Give {' or '.join(ENGINES)}, "
            f"or leave it out for the value of --engine."
        )
    return str(message.engine)


def _queue_limits(message: Any) -> QueueLimits:
    names = [limit.name for limit in dataclasses.fields(QueueLimits)]
    limits = {name: getattr(message, name) for name in names if message.HasField(name)}
    for name, value in limits.items():
        if value < 0:
            raise InvalidConfig(
                f"{name} of model {message.name} is {value}. Give 0 or more, or leave it out for "
                f"the value of --{name}."
            )
    return QueueLimits(**limits)


def _platform(message: Any) -> str:
    if message.model_type and message.model_platform:
        raise InvalidConfig(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            f"ModelServerConfig::model_platform, model name is {message.name}"
        )
    if not message.model_type and not message.model_platform:
        raise InvalidConfig(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f"ModelServerConfig::model_platform, model name is {message.name}"
        )
    if message.model_platform:
        return str(message.model_platform)
    model_types = type(message).DESCRIPTOR.fields_by_name["model_type"].enum_type
    value = model_types.values_by_number.get(message.model_type)
    name = str(message.model_type) if value is None else str(value.name)
    return PLATFORM if name == "TENSORFLOW" else name


def _version_policy(message: Any) -> VersionPolicy:
    policy = message.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return AllPolicy()
    if choice == "specific":
        return SpecificPolicy(tuple(policy.specific.versions))
    # If num_versions is 0 or missing, serve one version, as TensorFlow Serving does.
    return LatestPolicy(policy.latest.num_versions or 1)


def _request_logging(message: Any) -> RequestLogging:
    collector = message.log_collector_config
    return RequestLogging(
        type=collector.type,
        filename_prefix=collector.filename_prefix,
        sampling_rate=message.sampling_config.sampling_rate,
        format=collector.format or TFRECORD,
        max_total_bytes=collector.max_total_bytes,
    )
