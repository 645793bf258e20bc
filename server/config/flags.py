"""The flags of the server as data: TensorFlow Serving's, and those of ours.

Source of names and defaults: tensorflow_serving/model_servers/main.cc.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.config.model_config import local_path
from server.config.settings import Settings
from tpuserve import tags
from tpuserve.errors import InvalidSetting

_DEFAULTS = {each.name: each.default for each in dataclasses.fields(Settings)}
_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
      kind: "int", "float", "bool" or "text".
      default: where it is not given.
      is_ours: whether TensorFlow Serving does not have it.
      has_effect: False where it is only taken so that scripts need no change.
    """

    name: str
    kind: str
    default: Any
    help: str
    is_ours: bool = False
    has_effect: bool = True


@dataclass(frozen=True)
class Section:
    """Flags that are shown together."""

    title: str
    flags: tuple[Flag, ...]


def _flag(name: str, help: str, *, is_ours: bool = False) -> Flag:
    """One that sets the field of its name in `Settings`."""
    default = _DEFAULTS[name]
    if default is None or default == ():
        default = ""
    kind = {bool: "bool", int: "int", float: "float", str: "text"}[type(default)]
    if name.endswith("_seconds"):
        kind = "float"
    return Flag(name, kind, default, help, is_ours)


def _ours(name: str, help: str) -> Flag:
    return _flag(name, help, is_ours=True)


def _ignored(name: str, kind: str, default: Any, why: str) -> Flag:
    return Flag(name, kind, default, f"No effect here: {why}.", has_effect=False)


SECTIONS = (
    Section(
        "Models",
        (
            _flag("model_name", "Name that clients use for the model."),
            _flag(
                "model_base_path",
                "Absolute path of the directory with one numbered directory a version; the "
                "highest number is served.",
            ),
            _flag("model_config_file", "Models to serve instead, a ModelServerConfig in text."),
            _flag(
                "model_config_file_poll_wait_seconds",
                "How often that file is read again; 0 for never.",
            ),
            _flag(
                "allow_version_labels_for_unavailable_models",
                "Whether a new label may name a version that is not available yet.",
            ),
            _flag(
                "saved_model_tags",
                "Exact tag set of the metagraph to serve, as serve,tpu. Unset, it is serve,tpu "
                "on a machine with a TPU, real or emulated, and serve on any other.",
            ),
            _ours(
                "fallback_to_cpu",
                "Whether to serve the metagraph {serve} on the CPU where the wanted one is "
                "missing.",
            ),
            _flag("prefer_tflite_model", "Whether to serve model.tflite where a version has one."),
            _ours(
                "forbid_unsafe_ops",
                "Whether to refuse models with ops that reach files, the network or Python.",
            ),
            _ours("allow_links", "Whether links may lead out of a model's base path."),
        ),
    ),
    Section(
        "gRPC and REST",
        (
            _ours(
                "host",
                "Address to listen on, of IPv4 or IPv6: 127.0.0.1 or ::1 for this machine only. "
                "0.0.0.0 means all addresses of both kinds.",
            ),
            _flag("port", "Port for gRPC; 0 turns it off."),
            _flag("grpc_socket_path", "UNIX socket for gRPC, beside the port."),
            _flag("grpc_max_threads", "Requests over gRPC that are answered at once."),
            _flag(
                "grpc_channel_arguments", "Options of the gRPC server, as name=value,name=value."
            ),
            _flag("enable_grpc_healthcheck_service", "Whether to offer grpc.health.v1.Health."),
            _flag("enable_profiler", "Whether to offer TensorFlow's profiler over gRPC."),
            _flag(
                "enable_serialization_as_tensor_content",
                "Whether tensors are answered as tensor_content over gRPC.",
            ),
            _flag(
                "rest_api_port",
                "Port for REST; 0 turns it off, which is TensorFlow Serving's default.",
            ),
            _flag("rest_api_num_threads", "Requests over REST that are answered at once."),
            _flag("rest_api_timeout_in_ms", "How long a request over REST may take."),
            _flag("rest_api_enable_cors_support", "Whether any web page may ask over REST."),
            _flag("ssl_config_file", "Keys for TLS on both, an SSLConfig in text."),
            _flag(
                "enable_signature_method_name_check",
                "Whether a signature must be of the method it is asked through.",
            ),
        ),
    ),
    Section(
        "Loading",
        (
            _flag(
                "file_system_poll_wait_seconds",
                "How often base paths are looked at for versions; 0 or less for once.",
            ),
            _flag("max_num_load_retries", "How often a failed load is tried again."),
            _flag("load_retry_interval_micros", "How long before it is."),
            _flag("num_load_threads", "Versions that load at once; 0 for a few."),
            _flag("num_unload_threads", "Versions that unload at once; 0 for a few."),
            _flag("enable_model_warmup", "Whether a version runs its warm-up requests first."),
            _flag("num_request_iterations_for_warmup", "How often it runs each; 0 for once."),
        ),
    ),
    Section(
        "Batching",
        (
            _flag("enable_batching", "Whether requests are gathered into batches."),
            _flag("batching_parameters_file", "How they are, BatchingParameters in text."),
            _flag(
                "enable_per_model_batching_parameters",
                "Whether each version says so itself, in batching_params.pbtxt.",
            ),
        ),
    ),
    Section(
        "TensorFlow",
        (
            _flag("tensorflow_session_parallelism", "Threads of both kinds; 0 for TensorFlow's."),
            _flag("tensorflow_intra_op_parallelism", "Threads that one op may use."),
            _flag("tensorflow_inter_op_parallelism", "Threads that run ops side by side."),
            _flag("tensorflow_session_config_file", "Session options, a ConfigProto in text."),
            _flag(
                "platform_config_file",
                "Tags, batching, warm-up and session, in the place of what their flags say: a "
                "PlatformConfigMap in text.",
            ),
            _flag("xla_cpu_compilation_enabled", "Whether XLA compiles for the CPU."),
            _flag("mixed_precision", "bfloat16 to compute so where that is safe."),
            _flag("skip_initialize_tpu", "Whether the TPU system is left as it is at the start."),
            _flag("num_tflite_pools", "Interpreters of a TensorFlow Lite model; 0 for CPUs."),
            _flag("num_tflite_interpreters_per_pool", "How many times as many of them."),
        ),
    ),
    Section(
        "Watching and limits",
        (
            _flag("monitoring_config_file", "Where metrics are shown, a MonitoringConfig in text."),
            _ours("access_log", "Whether each request is logged, as a line of JSON."),
            _ours("shutdown_grace_seconds", "How long requests in flight may take after SIGTERM."),
            _ours("api_keys_file", "Keys that clients must show, one a line."),
            _ours("open_metrics", "Whether metrics are shown without a key."),
            _ours("open_health", "Whether health is told without a key."),
            _ours("max_request_bytes", "Largest request, after it is inflated."),
            _ours("max_requests_in_flight", "Requests that are answered or wait; 0 for no limit."),
        ),
    ),
    Section(
        "Taken, and without effect",
        (
            _ignored("flush_filesystem_caches", "bool", True, "files are not kept open"),
            _ignored("remove_unused_fields_from_bundle_metagraph", "bool", True, "always so"),
            _ignored("per_process_gpu_memory_fraction", "float", 0.0, "see the session options"),
            _ignored("xla_gpu_compilation_enabled", "bool", False, "models run on CPU or TPU"),
            _ignored("use_alts_credentials", "bool", False, "give --ssl_config_file"),
            _ignored("thread_pool_factory_config_file", "text", "", "give the parallelism flags"),
        ),
    ),
)
FLAGS = {flag.name: flag for section in SECTIONS for flag in section.flags}


def settings(values: Mapping[str, Any]) -> Settings:
    """The settings that flags' values make; a flag that is left out has its default.

    Raises:
      InvalidSetting: a value that no server can work with.
    """
    if values.get("use_alts_credentials"):
        # A door that is asked to be locked must not stand open.
        raise InvalidSetting(
            "--use_alts_credentials is set, and ALTS is not to be had here. Give "
            "--ssl_config_file, or leave it out."
        )
    chosen = {
        name: value
        for name, value in values.items()
        if FLAGS[name].has_effect and value is not None
    }
    if "model_base_path" in chosen:
        path = chosen["model_base_path"]
        is_listed = not path and chosen.get("model_config_file")
        chosen["model_base_path"] = None if is_listed else local_path(path)
    if "saved_model_tags" in chosen:
        chosen["saved_model_tags"] = tags.parse(chosen["saved_model_tags"]) or None
    if "grpc_channel_arguments" in chosen:
        chosen["grpc_channel_arguments"] = channel_arguments(chosen["grpc_channel_arguments"])
    return Settings(**chosen)


def channel_arguments(text: str) -> tuple[tuple[str, int | str], ...]:
    """Names and values out of "name=value,name=value"; what reads as an int32 is a number."""
    found = []
    for item in text.split(","):
        name, is_pair, value = item.partition("=")
        if is_pair and name:
            found.append((name, _number(value)))
    return tuple(found)


def without_effect(given: Sequence[str]) -> list[str]:
    """The flags out of those given that are taken and do nothing."""
    return [name for name in given if not FLAGS[name].has_effect]


def _number(value: str) -> int | str:
    try:
        number = int(value)
    except ValueError:
        return value
    return number if number in _INT32 else value
