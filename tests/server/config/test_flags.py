"""All of TensorFlow Serving's flags are there, with its defaults, and become settings."""

from pathlib import Path

import pytest

from server.config import flags
from server.config.model_config import REMOTE_SCHEMES
from server.config.settings import Settings
from tpuserve.errors import BasePathNotFound, InvalidSetting

# TensorFlow Serving's flags and their defaults. Of its 48 flags, "version" is left out, because it
# sets nothing; `OF_THEIR_OWN` has the others.
ORIGINAL = {
    "port": 8500,
    "grpc_socket_path": "",
    "rest_api_timeout_in_ms": 30000,
    "rest_api_enable_cors_support": False,
    "batching_parameters_file": "",
    "enable_per_model_batching_parameters": False,
    "allow_version_labels_for_unavailable_models": False,
    "model_config_file": "",
    "model_config_file_poll_wait_seconds": 0,
    "model_name": "default",
    "model_base_path": "",
    "num_load_threads": 0,
    "num_unload_threads": 0,
    "max_num_load_retries": 5,
    "load_retry_interval_micros": 60_000_000,
    "file_system_poll_wait_seconds": 1,
    "flush_filesystem_caches": True,
    "tensorflow_session_parallelism": 0,
    "tensorflow_intra_op_parallelism": 0,
    "tensorflow_inter_op_parallelism": 0,
    "tensorflow_session_config_file": "",
    "platform_config_file": "",
    "use_alts_credentials": False,
    "ssl_config_file": "",
    "per_process_gpu_memory_fraction": 0.0,
    "grpc_channel_arguments": "",
    "enable_model_warmup": True,
    "num_request_iterations_for_warmup": 0,
    "monitoring_config_file": "",
    "remove_unused_fields_from_bundle_metagraph": True,
    "prefer_tflite_model": False,
    "num_tflite_interpreters_per_pool": 1,
    "enable_signature_method_name_check": False,
    "xla_cpu_compilation_enabled": False,
    "xla_gpu_compilation_enabled": False,
    "enable_profiler": True,
    "thread_pool_factory_config_file": "",
    "mixed_precision": "",
    "skip_initialize_tpu": False,
    "enable_grpc_healthcheck_service": False,
    "enable_serialization_as_tensor_content": False,
}
# TensorFlow Serving's flags whose default depends on the machine, the hardware or the command.
OF_THEIR_OWN = {
    "enable_batching",
    "rest_api_port",
    "rest_api_num_threads",
    "grpc_max_threads",
    "num_tflite_pools",
    "saved_model_tags",
}


def test_original_flags_are_all_there_and_no_other_claims_to_be_one() -> None:
    theirs = {name for name, flag in flags.FLAGS.items() if not flag.is_ours}
    assert theirs == ORIGINAL.keys() | OF_THEIR_OWN
    assert len(theirs) == 47


def test_defaults_are_the_originals() -> None:
    assert {name: flags.FLAGS[name].default for name in ORIGINAL} == ORIGINAL


def test_flags_left_out_make_the_default_settings() -> None:
    values = {name: flag.default for name, flag in flags.FLAGS.items()}
    settings = flags.settings_from_flags({**values, "model_base_path": "/models/half"})
    assert settings == Settings(Path("/models/half"))


def test_tags_are_a_set_and_none_is_left_to_the_hardware() -> None:
    settings = flags.settings_from_flags({"model_base_path": "/m", "saved_model_tags": "tpu,serve"})
    assert settings.saved_model_tags == frozenset({"serve", "tpu"})
    assert flags.settings_from_flags({"model_base_path": "/m", "saved_model_tags": ""}) == Settings(
        Path("/m")
    )


def test_base_path_may_be_a_uri() -> None:
    assert flags.settings_from_flags({"model_base_path": "file:///m/half"}) == Settings(
        Path("/m/half")
    )


def test_config_file_goes_without_a_base_path() -> None:
    settings = flags.settings_from_flags(
        {"model_base_path": "", "model_config_file": "/models.config"}
    )
    assert settings.model_base_path is None


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", ()),
        (
            "grpc.so_reuseaddr=1,grpc.lb_policy_name=grpclb",
            (("grpc.so_reuseaddr", 1), ("grpc.lb_policy_name", "grpclb")),
        ),
        ("a=2147483648", (("a", "2147483648"),)),
        ("a=-2147483648", (("a", -(2**31)),)),
        ("nonsense,=1", ()),
    ],
)
def test_channel_arguments_are_numbers_where_they_read_as_int32(
    text: str, arguments: tuple[tuple[str, int | str], ...]
) -> None:
    assert flags.channel_arguments(text) == arguments


def test_flags_without_effect_are_known() -> None:
    names = ["port", "flush_filesystem_caches", "use_alts_credentials"]
    assert flags.ignored_flags(names) == ["flush_filesystem_caches", "use_alts_credentials"]


def test_a_lock_that_is_not_to_be_had_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="--use_alts_credentials is set"):
        flags.settings_from_flags({"use_alts_credentials": True})
    assert flags.settings_from_flags({"use_alts_credentials": False, "model_base_path": "/m"})


def test_base_path_on_another_file_system_is_told() -> None:
    with pytest.raises(
        BasePathNotFound, match="ftp://models/a is on ftp://, and the server reads this"
    ):
        flags.settings_from_flags({"model_base_path": "ftp://models/a"})


@pytest.mark.parametrize("scheme", REMOTE_SCHEMES)
def test_remote_base_path_is_taken_as_it_is(scheme: str) -> None:
    uri = f"{scheme}://models/a"
    assert flags.settings_from_flags({"model_base_path": uri}).model_base_path == uri
