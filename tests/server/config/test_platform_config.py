"""A platform config file takes precedence over the flags for the same settings."""

from pathlib import Path

import pytest

from server.config import platform_config
from server.config.batching_parameters import BatchingParameters
from server.config.platform_config import PlatformConfig
from server.config.settings import Settings
from tpuserve.errors import InvalidConfig

ADAPTER = "type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig"
FULL = """
  saved_model_tags: "serve"  saved_model_tags: "tpu"
  batching_parameters {
    max_batch_size { value: 4 }
    num_batch_threads { value: 2 }
    allowed_batch_sizes: [2, 4]
  }
  enable_model_warmup: true
  model_warmup_options {
    num_request_iterations { value: 3 }
    num_model_warmup_threads { value: 5 }
    enable_all_batch_sizes_warmup { value: true }
  }
  session_target: "grpc://elsewhere"
  mixed_precision: "bfloat16"
"""


def read_config(tmp_path: Path, text: str) -> PlatformConfig:
    path = tmp_path / "platform.config"
    path.write_text(text)
    return platform_config.read_platform_config(path)


def make_config(config: str, key: str = "tensorflow", adapter: str = ADAPTER) -> str:
    return f"""# for production
platform_configs {{
  key: "{key}"
  value {{ source_adapter_config {{ [{adapter}] {{ legacy_config {{ {config} }} }} }} }}
}}
"""


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read_config(tmp_path, text)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(tmp_path), "")


def test_fields_become_settings(tmp_path: Path) -> None:
    settings = read_config(tmp_path, make_config(FULL)).apply_to(Settings(Path("/m")))
    assert settings == Settings(
        Path("/m"),
        saved_model_tags=frozenset({"serve", "tpu"}),
        enable_batching=True,
        num_request_iterations_for_warmup=3,
        mixed_precision="bfloat16",
    )


def test_batches_and_warm_up_are_as_the_file_says(tmp_path: Path) -> None:
    config = read_config(tmp_path, make_config(FULL))
    assert config.batching == BatchingParameters(
        max_batch_size=4,
        num_batch_threads=2,
        allowed_batch_sizes=(2, 4),
        thread_pool_name="batch_threads",
    )
    assert config.warm_up_threads == 5


def test_fields_without_a_meaning_are_known(tmp_path: Path) -> None:
    fields = read_config(tmp_path, make_config(FULL)).fields_without_effect
    assert fields == ("session_target", "enable_all_batch_sizes_warmup")


def test_flags_are_replaced_by_a_file_that_says_nothing_of_them(tmp_path: Path) -> None:
    settings = Settings(
        Path("/m"),
        platform_config_file="/p",
        saved_model_tags=frozenset({"serve"}),
        batching_parameters_file="/b",
        tensorflow_session_parallelism=1,
        enable_model_warmup=True,
    )
    config = read_config(tmp_path, make_config(""))
    # A boolean field that the file leaves out is false, also the field that enables warm-up.
    expected = Settings(
        Path("/m"), platform_config_file="/p", enable_model_warmup=False, enable_batching=False
    )
    assert config.apply_to(settings) == expected
    assert config.overridden_flags(settings) == [
        "batching_parameters_file",
        "saved_model_tags",
        "tensorflow_session_parallelism",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'no platform_configs for the platform "tensorflow"'),
        ("platform_configs {", "Invalid protobuf file: '/platform.config': line 1, "),
        (make_config("nonsense: 1"), '"tensorflow.serving.SessionBundleConfig" has no field named'),
        (
            make_config("nonsense: 1"),
            "line 4, column 130, field platform_configs.value.source_adapter_config.type.",
        ),
        (make_config("", key="caffe"), "line 3: the platform is 'caffe', and only \"tensorflow\""),
        (
            make_config("", adapter="type.googleapis.com/a.B"),
            "Type a.B not found in descriptor pool",
        ),
        (
            'platform_configs { key: "tensorflow" }',
            "source_adapter_config is empty. Give a [type.googleapis.com/tensorflow.serving.Saved",
        ),
        (
            make_config("", adapter="type.googleapis.com/tensorflow.serving.PlatformConfigMap"),
            'Message type "tensorflow.serving.PlatformConfigMap" has no field named',
        ),
        (
            make_config("batching_parameters { max_batch_size { value: 0 } }"),
            "/platform.config: max_batch_size is 0. Give a whole number of at least 1.",
        ),
        (
            make_config("model_warmup_options { num_model_warmup_threads { value: -1 } }"),
            "/platform.config: num_model_warmup_threads is -1. Give a whole number of at least 0.",
        ),
    ],
)
def test_wrong_file_is_one_line_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read /absent/platform.config"):
        platform_config.read_platform_config(Path("/absent/platform.config"))
