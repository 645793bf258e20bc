"""Reads the settings of the platform "tensorflow" from the file of --platform_config_file."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from server.config import batching_parameters, messages, textproto
from server.config.batching_parameters import BatchingParameters
from server.config.model_config import PLATFORM
from server.config.settings import Settings
from tpuserve.errors import InvalidConfig
from tpuserve.validation import check_integer

_DEFAULTS = {setting.name: setting.default for setting in dataclasses.fields(Settings)}

# The flags that have no effect if there is a platform config file, whatever the file contains. They
# are reset to their defaults.
_REPLACED_FLAGS = (
    "batching_parameters_file",
    "tensorflow_session_parallelism",
    "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism",
    "tensorflow_session_config_file",
)
_FIELDS_WITHOUT_EFFECT = (
    "session_target",
    "session_run_load_threadpool_index",
    "experimental_transient_ram_bytes_during_load",
    "enable_session_metadata",
    "resource_estimation_uses_validation_result",
    "wrap_session_with_no_threading_params",
    "num_tflite_interpreters",
)


@dataclass(frozen=True)
class PlatformConfig:
    """The settings of a platform config file, a PlatformConfigMap of TensorFlow Serving.

    Attributes:
      flags: field of `Settings` → the value in the file, which replaces the value of the flag.
      batching: the batching parameters; None if requests are not batched.
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    batching: BatchingParameters | None = None
    session_config: bytes = b""
    warm_up_threads: int = 1
    fields_without_effect: tuple[str, ...] = ()

    def apply_to(self, settings: Settings) -> Settings:
        """Return a copy of the settings in which the values of the file replace values of flags."""
        defaults = {name: _DEFAULTS[name] for name in _REPLACED_FLAGS}
        return dataclasses.replace(settings, **{**defaults, **self.flags})

    def overridden_flags(self, settings: Settings) -> list[str]:
        """Return the flags that were set but have no effect, because the file replaces them."""
        names = (*self.flags, *_REPLACED_FLAGS)
        return sorted(name for name in names if getattr(settings, name) != _DEFAULTS[name])


def read_platform_config(path: Path) -> PlatformConfig:
    """Read a file with a PlatformConfigMap in text form.

    Raises:
      InvalidConfig: the file cannot be read or parsed, has a platform other than "tensorflow", or
        sets an invalid value.
    """
    text = textproto.read_text(path)
    pool = messages.pool_for_text(text)
    empty = messages.new_message("PlatformConfigMap", pool)
    platforms = textproto.parse_text(text, empty, path, pool)
    try:
        return _from_message(_session_bundle_config(platforms, text, pool))
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error


def _line_of(text: str, word: str) -> int:
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines, start=1) if word in line), 1)


def _session_bundle_config(platforms: Any, text: str, pool: DescriptorPool) -> Any:
    packed = None
    for entry in platforms.platform_configs:
        if entry.key != PLATFORM:
            raise InvalidConfig(
                f"line {_line_of(text, entry.key)}: the platform is {entry.key!r}, and only "
                f'"{PLATFORM}" can be served. Leave the other out.'
            )
        # If the map has several entries for this platform, keep the last one, as protobuf does for
        # equal keys.
        packed = entry.value.source_adapter_config
    if packed is None:
        raise InvalidConfig(
            f'there are no platform_configs for the platform "{PLATFORM}". Give them.'
        )
    if packed.type_url.rpartition("/")[2] != messages.ADAPTER:
        raise InvalidConfig(
            f"source_adapter_config is {packed.type_url or 'empty'}. Give a "
            f"[type.googleapis.com/{messages.ADAPTER}]."
        )
    adapter = messages.new_message(messages.ADAPTER.rpartition(".")[2], pool)
    try:
        adapter.ParseFromString(packed.value)
    except DecodeError as error:
        raise InvalidConfig(
            f"line {_line_of(text, 'type_url')}: the value is not a {messages.ADAPTER}. Give the "
            f"value in text form."
        ) from error
    return adapter.legacy_config


def _from_message(config: Any) -> PlatformConfig:
    """Convert a SessionBundleConfig message to a PlatformConfig."""
    if config.experimental_fixed_input_tensors:
        # Refuse fixed input tensors, which this server does not support. If the server ignored
        # them, the model would compute other outputs than under TensorFlow Serving.
        raise InvalidConfig(
            "experimental_fixed_input_tensors are set, and this server does not support them. "
            "Export the model with these inputs as constants, or remove the field."
        )
    warm_up = config.model_warmup_options
    counts = {
        "num_request_iterations": warm_up.num_request_iterations.value,
        "num_model_warmup_threads": warm_up.num_model_warmup_threads.value,
        "num_tflite_pools": config.num_tflite_pools,
        "num_tflite_interpreters_per_pool": config.num_tflite_interpreters_per_pool,
    }
    for name, count in counts.items():
        check_integer(name, count, least=0, error=InvalidConfig)
    batching = None
    if config.HasField("batching_parameters"):
        batching = batching_parameters.from_message(config.batching_parameters)
    return PlatformConfig(
        flags={
            "enable_batching": batching is not None,
            "enable_per_model_batching_parameters": (
                batching is not None and config.enable_per_model_batching_params
            ),
            "saved_model_tags": frozenset(config.saved_model_tags) or None,
            "enable_model_warmup": config.enable_model_warmup,
            "num_request_iterations_for_warmup": counts["num_request_iterations"],
            "prefer_tflite_model": config.prefer_tflite_model,
            "num_tflite_pools": counts["num_tflite_pools"],
            "num_tflite_interpreters_per_pool": counts["num_tflite_interpreters_per_pool"] or 1,
            "mixed_precision": config.mixed_precision,
        },
        batching=batching,
        session_config=config.session_config.SerializeToString(),
        warm_up_threads=counts["num_model_warmup_threads"] or 1,
        fields_without_effect=_fields_without_effect(config),
    )


def _fields_without_effect(config: Any) -> tuple[str, ...]:
    set_fields = {descriptor.name for descriptor, _ in config.ListFields()}
    ignored = [name for name in _FIELDS_WITHOUT_EFFECT if name in set_fields]
    if config.model_warmup_options.enable_all_batch_sizes_warmup.value:
        ignored.append("enable_all_batch_sizes_warmup")
    return tuple(ignored)
