"""How models are run, from --platform_config_file: in the place of what several flags say."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from server.config import batching_parameters, messages, session_bundle, textproto
from server.config.batching_parameters import BatchingParameters
from server.config.model_config import PLATFORM
from server.config.settings import Settings
from tpuserve.errors import InvalidConfig

_DEFAULTS = {each.name: each.default for each in dataclasses.fields(Settings)}

# What else such a file says in the place of flags, beside `Platform.flags`.
_REPLACED = (
    "batching_parameters_file",
    "tensorflow_session_parallelism",
    "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism",
    "tensorflow_session_config_file",
)
_WITHOUT_EFFECT = (
    "session_target",
    "session_run_load_threadpool_index",
    "experimental_transient_ram_bytes_during_load",
    "enable_session_metadata",
    "resource_estimation_uses_validation_result",
    "wrap_session_with_no_threading_params",
    "num_tflite_interpreters",
)


@dataclass(frozen=True)
class Platform:
    """What such a file says of the platform "tensorflow".

    Attributes:
      flags: the values that it has in the place of flags, by field of `Settings`.
      batching: None where requests are not batched.
      session_config: a serialised ConfigProto.
      warm_up_threads: how many warm-up requests of a version run at once.
      without_effect: the fields that are set in it and do nothing here.
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    batching: BatchingParameters | None = None
    session_config: bytes = b""
    warm_up_threads: int = 1
    without_effect: tuple[str, ...] = ()

    def in_force(self, settings: Settings) -> Settings:
        """The settings with the file's values, where those flags have theirs."""
        defaults = {name: _DEFAULTS[name] for name in _REPLACED}
        return dataclasses.replace(settings, **{**defaults, **self.flags})

    def replaced(self, settings: Settings) -> list[str]:
        """The flags that were set and are without effect because of the file."""
        names = (*self.flags, *_REPLACED)
        return sorted(name for name in names if getattr(settings, name) != _DEFAULTS[name])


def read(path: Path) -> Platform:
    """What a file says: a PlatformConfigMap in text form.

    Raises:
      InvalidConfig: it cannot be read or parsed, has another platform than "tensorflow", or asks
        for what cannot be.
    """
    text = textproto.read(path)
    pool = session_bundle.pool_for(text)
    empty = messages.new("PlatformConfigMap", pool)
    try:
        proto = textproto.parse(text, empty, path, pool)
    except InvalidConfig as error:
        raise InvalidConfig(f"{error}: {_placed(str(error.__cause__), text)}") from None
    try:
        return _from_config(_config(proto, text, pool))
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error


def _placed(why: str, text: str) -> str:
    """Why it cannot be parsed, with the line also where the parser does not tell it."""
    words = why.split()
    if why.startswith("Type ") and why.endswith(" not found in descriptor pool"):
        return (
            f"line {_line_of(text, words[1])}: {words[1]} is unknown. Give a "
            f"{session_bundle.ADAPTER}."
        )
    return why


def _line_of(text: str, word: str) -> int:
    lines = text.splitlines()
    return next((i for i, line in enumerate(lines, start=1) if word in line), 1)


def _config(proto: Any, text: str, pool: DescriptorPool) -> Any:
    """The SessionBundleConfig of a PlatformConfigMap."""
    found = None
    for each in proto.platform_configs:
        if each.key != PLATFORM:
            raise InvalidConfig(
                f"line {_line_of(text, each.key)}: the platform is {each.key!r}, and only "
                f'"{PLATFORM}" can be served. Leave the other out.'
            )
        # As of any map, the last of a key counts.
        found = each.value.source_adapter_config
    if found is None:
        raise InvalidConfig(
            f'there are no platform_configs for the platform "{PLATFORM}". Give them.'
        )
    if found.type_url.rpartition("/")[2] != session_bundle.ADAPTER:
        raise InvalidConfig(
            f"source_adapter_config is {found.type_url or 'empty'}. Give a "
            f"[type.googleapis.com/{session_bundle.ADAPTER}]."
        )
    adapter = messages.new(session_bundle.ADAPTER.rpartition(".")[2], pool)
    try:
        adapter.ParseFromString(found.value)
    except DecodeError as error:
        raise InvalidConfig(
            f"line {_line_of(text, 'type_url')}: the value is no {session_bundle.ADAPTER}. Give "
            f"it in text form."
        ) from error
    return adapter.legacy_config


def _from_config(config: Any) -> Platform:
    if getattr(config, "experimental_fixed_input_tensors", ()):
        # Without them the model's answers would be others.
        raise InvalidConfig(
            "experimental_fixed_input_tensors are set, and are not to be had here. Export the "
            "model with them as constants, or leave them out."
        )
    warm_up = config.model_warmup_options
    counts = {
        "num_request_iterations": warm_up.num_request_iterations.value,
        "num_model_warmup_threads": warm_up.num_model_warmup_threads.value,
        "num_tflite_pools": config.num_tflite_pools,
        "num_tflite_interpreters_per_pool": config.num_tflite_interpreters_per_pool,
    }
    for name, count in counts.items():
        if count < 0:
            raise InvalidConfig(f"{name} is {count}. Give 0 or more.")
    batching = None
    if config.HasField("batching_parameters"):
        batching = batching_parameters.from_message(config.batching_parameters)
    session = getattr(config, "session_config", None)
    return Platform(
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
        session_config=b"" if session is None else session.SerializeToString(),
        warm_up_threads=counts["num_model_warmup_threads"] or 1,
        without_effect=_without_effect(config),
    )


def _without_effect(config: Any) -> tuple[str, ...]:
    given = {each.name for each, _ in config.ListFields()}
    found = [name for name in _WITHOUT_EFFECT if name in given]
    if config.model_warmup_options.enable_all_batch_sizes_warmup.value:
        found.append("enable_all_batch_sizes_warmup")
    return tuple(found)
