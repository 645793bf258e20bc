"""The model config file, and the same as a message: ModelServerConfig → frozen data."""

from pathlib import Path
from typing import Any

from server.config import textproto
from server.config.model_config import (
    PLATFORM,
    All,
    Latest,
    ModelConfig,
    ModelServerConfig,
    RequestLogging,
    Specific,
    VersionPolicy,
)
from tpuserve.errors import InvalidConfig


def read(path: Path) -> ModelServerConfig:
    """What a file of the text form of ModelServerConfig says.

    Raises:
      InvalidConfig: it cannot be read or parsed, or asks for what cannot be.
    """
    return parse(textproto.read(path), path)


def says_nothing(text: str) -> bool:
    """Whether a text has nothing but comments: no list of models, not even an empty one."""
    return not any(line.partition("#")[0].strip() for line in text.splitlines())


def parse(text: str, path: Path) -> ModelServerConfig:
    """What the text of such a file says; `path` is for the errors."""
    # Imported here because the messages bring TensorFlow.
    from tensorflow_serving.config import model_server_config_pb2 as pb

    proto = textproto.parse(text, pb.ModelServerConfig(), path)
    if proto.WhichOneof("config") == "custom_model_config":
        raise InvalidConfig(
            f"{path} has a custom_model_config, and only a model_config_list can be served. List "
            f"the models in one."
        )
    return _from_list(proto.model_config_list)


def of_request(proto: Any) -> ModelServerConfig:
    """What the ModelServerConfig message of a HandleReloadConfigRequest says.

    Raises:
      InvalidConfig: it holds no list, or asks for what cannot be.
    """
    if proto.WhichOneof("config") != "model_config_list":
        raise InvalidConfig(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported"
        )
    config = _from_list(proto.model_config_list)
    # Whoever may reload would choose files for the server to write.
    for each in config.models:
        if each.logging is not None:
            raise InvalidConfig(
                f"logging_config of model {each.name}: requests are logged as the file of "
                f"--model_config_file says, and not as a request does. Leave it out, or put it "
                f"into that file."
            )
    return config


def _from_list(proto: Any) -> ModelServerConfig:
    return ModelServerConfig(tuple(_model(each) for each in proto.config))


def _model(proto: Any) -> ModelConfig:
    return ModelConfig(
        name=proto.name,
        base_path=proto.base_path,
        policy=_policy(proto),
        labels=dict(proto.version_labels),
        logging=_logging(proto.logging_config) if proto.HasField("logging_config") else None,
        platform=_platform(proto),
    )


def _platform(proto: Any) -> str:
    if proto.model_type and proto.model_platform:
        raise InvalidConfig(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            f"ModelServerConfig::model_platform, model name is {proto.name}"
        )
    if not proto.model_type and not proto.model_platform:
        raise InvalidConfig(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f"ModelServerConfig::model_platform, model name is {proto.name}"
        )
    if proto.model_platform:
        return str(proto.model_platform)
    kind = type(proto).DESCRIPTOR.fields_by_name["model_type"].enum_type
    known = kind.values_by_number.get(proto.model_type)
    name = str(proto.model_type) if known is None else str(known.name)
    return PLATFORM if name == "TENSORFLOW" else name


def _policy(proto: Any) -> VersionPolicy:
    policy = proto.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return All()
    if choice == "specific":
        return Specific(tuple(policy.specific.versions))
    # 0 stands for the default of one.
    return Latest(policy.latest.num_versions or 1)


def _logging(proto: Any) -> RequestLogging:
    return RequestLogging(
        type=proto.log_collector_config.type,
        filename_prefix=proto.log_collector_config.filename_prefix,
        sampling_rate=proto.sampling_config.sampling_rate,
    )
