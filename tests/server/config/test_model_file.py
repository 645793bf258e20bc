"""Model config files are read as libprotobuf reads them, and refused in the same words."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from server.config import messages, model_file, textproto
from server.config.model_config import (
    AllPolicy,
    LatestPolicy,
    ModelConfig,
    ModelServerConfig,
    QueueLimits,
    RequestLogging,
    SpecificPolicy,
)
from tpuserve.errors import InvalidConfig

PATH = Path("/models.config")


def message(text: str) -> Any:
    return text_format.Parse(text, messages.new_message("ModelServerConfig"))


def parse_models(*models: str) -> tuple[ModelConfig, ...]:
    configs = "".join(f"config {{ {model} }} " for model in models)
    return model_file.parse_model_config(f"model_config_list {{ {configs} }}", PATH).models


TF = "model_platform: 'tensorflow'"


def test_models_are_read_with_separators_or_without() -> None:
    text = (
        "model_config_list: { config: { name: 'a', base_path: '/a'; model_platform: 'tensorflow' } "
        "}"
    )
    assert model_file.parse_model_config(text, PATH) == ModelServerConfig((ModelConfig("a", "/a"),))


def test_empty_file_is_empty_and_an_empty_list_does() -> None:
    assert model_file.is_empty("\n# models: none yet\n")
    assert not model_file.is_empty("# none\nmodel_config_list {}")


def test_empty_file_is_no_model() -> None:
    assert model_file.parse_model_config("", PATH).models == ()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", LatestPolicy(1)),
        ("model_version_policy { latest {} }", LatestPolicy(1)),
        ("model_version_policy { latest { num_versions: 3 } }", LatestPolicy(3)),
        ("model_version_policy { all {} }", AllPolicy()),
        ("model_version_policy { specific { versions: 7 versions: 9 } }", SpecificPolicy((7, 9))),
    ],
)
def test_version_policy_is_read(text: str, policy: object) -> None:
    (model,) = parse_models(f"name: 'a' base_path: '/a' {TF} {text}")
    assert model.policy == policy


def test_labels_and_logging_are_read() -> None:
    (model,) = parse_models(
        f"name: 'a' base_path: '/a' {TF} version_labels {{ key: 'stable' value: 3 }} "
        "logging_config { log_collector_config { type: 'file' filename_prefix: '/log' } "
        "sampling_config { sampling_rate: 0.5 } }"
    )
    assert model.labels == {"stable": 3}
    assert model.logging == RequestLogging("file", "/log", 0.5)


def test_destination_format_and_size_of_a_log_are_read() -> None:
    (model,) = parse_models(
        f"name: 'a' base_path: '/a' {TF} logging_config {{ log_collector_config {{ "
        "filename_prefix: 's3://logs/a' format: 'jsonl' max_total_bytes: 1000 } }"
    )
    assert model.logging == RequestLogging("", "s3://logs/a", 0, "jsonl", 1000)


def test_deprecated_type_is_a_platform() -> None:
    (model,) = parse_models("name: 'a' base_path: '/a' model_type: TENSORFLOW")
    assert model.platform == "tensorflow"


def test_model_of_no_platform_is_refused() -> None:
    text = (
        r"^Illegal setting neither ModelServerConfig::model_type \(deprecated\) nor "
        r"ModelServerConfig::model_platform, model name is a$"
    )
    with pytest.raises(InvalidConfig, match=text):
        parse_models("name: 'a' base_path: '/a'")


def test_text_that_is_no_message_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "models.config"
    path.write_text("model_config_list { nonsense: 3 }")
    with pytest.raises(InvalidConfig) as caught:
        model_file.parse_model_config(textproto.read_text(path), path)
    assert str(caught.value).startswith(
        f"Invalid protobuf file: '{path}': line 1, column 21, field model_config_list.nonsense: "
        f"Error parsing text-format tensorflow.serving.ModelServerConfig: Message type "
    )


def test_byte_that_is_not_utf_8_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "models.config"
    path.write_bytes(b"model_config_list {\n config { name: '\xff' } }")
    with pytest.raises(InvalidConfig) as caught:
        model_file.parse_model_config(textproto.read_text(path), path)
    assert "line 2, column 17, field model_config_list.config.name: " in str(caught.value)
    assert str(caught.value).isprintable()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read .*/none: No such file"):
        textproto.read_text(tmp_path / "none")


def test_file_with_a_custom_config_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="has a custom_model_config"):
        model_file.parse_model_config("custom_model_config {}", PATH)


def test_request_without_a_list_is_refused() -> None:
    text = (
        "^ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
        "ModelConfigList is currently supported$"
    )
    with pytest.raises(InvalidConfig, match=text):
        model_file.from_reload_request(message(""))


def test_request_with_an_empty_list_is_no_model() -> None:
    assert model_file.from_reload_request(message("model_config_list {}")).models == ()


def test_a_request_does_not_choose_files_to_write() -> None:
    text = (
        "model_config_list { config { name: 'a' base_path: '/m/a' model_platform: 'tensorflow' "
        "logging_config { log_collector_config { type: 'file' filename_prefix: '/log' } "
        "sampling_config { sampling_rate: 1 } } } }"
    )
    with pytest.raises(InvalidConfig, match="logging_config of model a: .*--model_config_file"):
        model_file.from_reload_request(message(text))


LIMITS = "max_concurrent_runs: 3 max_queue: 0 max_queue_ms: 250"


def test_limits_of_the_queue_are_read_and_may_be_left_out() -> None:
    limited, unlimited = parse_models(
        f"name: 'a' base_path: '/a' {TF} {LIMITS}", f"name: 'b' base_path: '/b' {TF}"
    )
    assert limited.limits == QueueLimits(3, 0, 250)
    assert unlimited.limits == QueueLimits(None, None, None)


@pytest.mark.parametrize("name", ["max_concurrent_runs", "max_queue", "max_queue_ms"])
def test_negative_limit_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name} of model a is -1. Give 0 or more"):
        parse_models(f"name: 'a' base_path: '/a' {TF} {name}: -1")


def test_need_of_a_version_is_read_and_may_be_left_out() -> None:
    config = f"base_path: '/a' {TF}"
    models = parse_models(
        f"name: 'a' {config} fail_if_no_model_versions_found: true",
        f"name: 'b' {config} fail_if_no_model_versions_found: false",
        f"name: 'c' {config}",
    )
    assert [model.versions_required for model in models] == [True, False, None]


def test_engine_of_a_model_is_read_and_may_be_left_out() -> None:
    xla, default = parse_models(
        f"name: 'a' base_path: '/a' {TF} engine: 'xla'", f"name: 'b' base_path: '/b' {TF}"
    )
    assert (xla.engine, default.engine) == ("xla", "")


def test_unknown_engine_of_a_model_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="^engine of model a is 'gpu'. Give tensorflow or xla"):
        parse_models(f"name: 'a' base_path: '/a' {TF} engine: 'gpu'")


def test_messages_agree_with_tensorflow_servings_own() -> None:
    from tensorflow_serving.config import model_server_config_pb2 as pb

    ours = message("").DESCRIPTOR
    theirs = pb.ModelServerConfig.DESCRIPTOR
    own = {
        ("ModelConfig.max_concurrent_runs", 20001, FieldDescriptor.TYPE_INT32),
        ("ModelConfig.max_queue", 20002, FieldDescriptor.TYPE_INT32),
        ("ModelConfig.max_queue_ms", 20003, FieldDescriptor.TYPE_INT32),
        ("ModelConfig.fail_if_no_model_versions_found", 20004, FieldDescriptor.TYPE_BOOL),
        ("ModelConfig.engine", 20005, FieldDescriptor.TYPE_STRING),
        ("ModelConfig.pinned", 20006, FieldDescriptor.TYPE_BOOL),
        ("LogCollectorConfig.format", 20001, FieldDescriptor.TYPE_STRING),
        ("LogCollectorConfig.max_total_bytes", 20002, FieldDescriptor.TYPE_INT64),
    }
    assert fields(ours) - fields(theirs) == {
        (f"tensorflow.serving.{name}", *rest) for name, *rest in own
    }
    assert fields(theirs) <= fields(ours)


def test_limits_reach_the_server_through_tensorflow_servings_messages() -> None:
    from tensorflow_serving.config import model_server_config_pb2 as pb

    text = f"model_config_list {{ config {{ name: 'a' base_path: '/a' {TF} {LIMITS} }} }}"
    foreign = pb.ModelServerConfig.FromString(message(text).SerializeToString())
    (model,) = model_file.from_reload_request(foreign).models
    assert (model.name, model.limits) == ("a", QueueLimits(3, 0, 250))


def fields(descriptor: Any, names: frozenset[str] = frozenset()) -> set[tuple[str, int, int]]:
    """Return full name, number and type of each field of a message and of the messages in it."""
    if descriptor.full_name in names:
        return set()
    names |= {descriptor.full_name}
    return {(field.full_name, field.number, field.type) for field in descriptor.fields}.union(
        *(fields(field.message_type, names) for field in descriptor.fields if field.message_type)
    )
