"""The command-line flags of the server: TensorFlow Serving's flags and additional flags.

Source of names and defaults: tensorflow_serving/model_servers/main.cc.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from server.config.model_config import is_remote, local_path
from server.config.settings import AUTO, Settings
from tpuserve import tags
from tpuserve.errors import InvalidSetting
from tpuserve.saved_model import op_imports

_DEFAULTS = {setting.name: setting.default for setting in dataclasses.fields(Settings)}
_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class Flag:
    """One command-line flag.

    Attributes:
      value_type: bool, int, float, text, or auto: a bool or the text "auto".
      is_repeatable: whether the flag may be given several times; commas join the values.
      has_effect: False for a flag of TensorFlow Serving that is accepted and ignored, so that
        existing scripts need no change.
    """

    name: str
    value_type: str
    default: Any
    help: str
    is_ours: bool = False
    has_effect: bool = True
    is_repeatable: bool = False


@dataclass(frozen=True)
class Section:
    """A title and the flags that --help prints under this title."""

    title: str
    flags: tuple[Flag, ...]


def _flag(name: str, help: str, *, is_ours: bool = False) -> Flag:
    default = _DEFAULTS[name]
    if default is None or default == ():
        default = ""
    value_type = {bool: "bool", int: "int", float: "float", str: "text"}[type(default)]
    if name.endswith("_seconds"):
        value_type = "float"
    if default == AUTO:
        value_type = AUTO
    return Flag(name, value_type, default, help, is_ours)


def _own_flag(name: str, help: str) -> Flag:
    return _flag(name, help, is_ours=True)


def _ignored_flag(name: str, value_type: str, default: Any, reason: str) -> Flag:
    return Flag(name, value_type, default, f"Accepted and ignored: {reason}.", has_effect=False)


SECTIONS = (
    Section(
        "Models",
        (
            _flag("model_name", "Name that clients use for the model."),
            _flag(
                "model_base_path",
                "Path of the model's directory; tpuserve-model-server requires an absolute path. "
                "It holds one numbered directory per version, for example /models/half/1; the "
                "highest number is served. A SavedModel or a .keras file is served as version 1. "
                "Or a URI of gs, s3, az, hf, http or https, which needs the extra remote.",
            ),
            _flag(
                "model_config_file",
                "File that lists several models (ModelServerConfig, text format); replaces "
                "--model_name and --model_base_path.",
            ),
            _flag(
                "model_config_file_poll_wait_seconds",
                "Seconds between checks of the model config file for changes; 0 means never.",
            ),
            _flag(
                "allow_version_labels_for_unavailable_models",
                "Allow a new version label to name a version that is not available yet.",
            ),
            _flag(
                "saved_model_tags",
                "Exact tag set of the metagraph to serve, for example serve,tpu. Default: "
                "serve,tpu on a machine with a real or emulated TPU, serve on other machines.",
            ),
            _own_flag(
                "fallback_to_cpu",
                "Serve the {serve} metagraph on the CPU where the requested metagraph is missing.",
            ),
            _flag("prefer_tflite_model", "Serve model.tflite where a version has this file."),
            _own_flag(
                "forbid_unsafe_ops",
                "Refuse models with ops that may do more than compute on the model's own files.",
            ),
            replace(
                _own_flag(
                    "import_ops",
                    "Python packages that register ops, and libraries for tf.load_op_library, "
                    "separated by commas (repeatable). They are imported before the models are "
                    "loaded, and models may have all their ops. tensorflow_text is imported by "
                    "itself for a model that needs it.",
                ),
                is_repeatable=True,
            ),
            _own_flag(
                "max_constant_bytes",
                "Largest size of a model's constants, and of the tensors that it makes of them, in "
                "bytes beyond their size in the file; 0 means no limit.",
            ),
            _own_flag(
                "model_signature_policy",
                "off, or require to load only versions whose model.sig (OpenSSF Model Signing) "
                "verifies with --model_signing_key; needs the extra signing.",
            ),
            _own_flag(
                "model_signing_key",
                "File of the public key, of an elliptic curve in PEM, that verifies signatures.",
            ),
            _own_flag("allow_links", "Allow symbolic links that lead out of a model's base path."),
        ),
    ),
    Section(
        "gRPC and REST",
        (
            _own_flag(
                "host",
                "IPv4 or IPv6 address to listen on. 127.0.0.1 or ::1 accepts only this machine's "
                "clients; 0.0.0.0 means all addresses of both kinds.",
            ),
            _flag("port", "Port for gRPC; 0 turns gRPC off."),
            _flag("grpc_socket_path", "UNIX socket for gRPC, in addition to the port."),
            _flag(
                "grpc_max_threads",
                "Number of gRPC requests that run at the same time, in addition to those that wait "
                "for their batch; a model of which nothing runs always gets one thread more.",
            ),
            _flag(
                "grpc_channel_arguments",
                "gRPC server options, for example grpc.max_connection_age_ms=2000,name=value.",
            ),
            _flag("enable_grpc_healthcheck_service", "Offer the service grpc.health.v1.Health."),
            _flag("enable_profiler", "Offer TensorFlow's profiler service over gRPC."),
            _flag(
                "enable_serialization_as_tensor_content",
                "Return gRPC tensors in the field tensor_content.",
            ),
            _flag(
                "rest_api_port",
                "Port for REST; 0 turns REST off (TensorFlow Serving's default is 0).",
            ),
            _flag(
                "rest_api_num_threads",
                "Number of REST requests that run at the same time, in addition to those that wait "
                "for their batch; a model of which nothing runs always gets one thread more.",
            ),
            _flag("rest_api_timeout_in_ms", "Time limit of a REST request, in milliseconds."),
            _flag("rest_api_enable_cors_support", "Allow web pages of any origin to use REST."),
            _flag(
                "ssl_config_file",
                "File with keys and certificates for TLS on both ports (SSLConfig, text format).",
            ),
            _flag(
                "enable_signature_method_name_check",
                "Require the signature's method to match the API that the client calls.",
            ),
        ),
    ),
    Section(
        "Loading",
        (
            _flag(
                "file_system_poll_wait_seconds",
                "Seconds between checks of the base paths for new versions; 0 or less means once.",
            ),
            _own_flag(
                "model_cache_dir",
                "Directory of the versions downloaded from gs://, s3:// and other remote base "
                "paths, and of exports of .keras files; servers may share it. Default: models in "
                "$TPUSERVE_CACHE_DIR, or in the user's cache directory.",
            ),
            _own_flag(
                "model_cache_max_bytes",
                "Largest size of the downloaded versions, in bytes: the least recently used are "
                "removed; 0 means no limit.",
            ),
            _own_flag(
                "fail_if_no_model_versions_found",
                "End the start with an error if the base path of any model has no version. By "
                "default the server waits for the first version. A model's "
                "fail_if_no_model_versions_found in the model config file replaces it.",
            ),
            _own_flag(
                "load_timeout_seconds",
                "Seconds that the initialisation of a version may take, and as many for its "
                "warm-up; 0 means no limit.",
            ),
            _own_flag(
                "lazy_load",
                "List and check the models at the start, and load each at its first request, which "
                "waits for it. A model with pinned: true in the model config file is loaded at the "
                "start.",
            ),
            _own_flag(
                "lazy_load_timeout",
                "Seconds that a request may wait until its model is loaded; 0 means no limit.",
            ),
            _own_flag(
                "max_model_memory",
                "Memory that all loaded models of a process may need together, estimated from "
                "their files, for example 8GB or 512MiB. The least recently used model of "
                "--lazy_load is unloaded when another does not fit. Empty means no limit.",
            ),
            _flag("max_num_load_retries", "Number of retries after a failed load."),
            _flag("load_retry_interval_micros", "Microseconds between load retries."),
            _flag("num_load_threads", "Number of versions that load at the same time; 0 means 2."),
            _flag(
                "num_unload_threads", "Number of versions that unload at the same time; 0 means 4."
            ),
            _flag(
                "enable_model_warmup",
                "Run a version's warm-up requests before it receives requests.",
            ),
            _flag(
                "num_request_iterations_for_warmup",
                "How many times to run each warm-up request; 0 means once.",
            ),
        ),
    ),
    Section(
        "Batching",
        (
            _flag(
                "enable_batching",
                "Combine requests into batches. Without a file with settings, the requests that "
                "wait when a run ends are the next batch, if rows do not depend on each other. "
                "auto leaves signatures alone that are not faster in batches; "
                "tpuserve-model-server's default is false.",
            ),
            _flag(
                "batching_parameters_file",
                "File with batching settings (BatchingParameters, text format), with "
                "batching_policy besides TensorFlow Serving's. Needs --enable_batching.",
            ),
            _flag(
                "enable_per_model_batching_parameters",
                "Read batching settings from batching_params.pbtxt in each version's directory.",
            ),
        ),
    ),
    Section(
        "TensorFlow",
        (
            _flag(
                "tensorflow_session_parallelism",
                "Intra-op and inter-op threads; 0 means TensorFlow's default.",
            ),
            _flag("tensorflow_intra_op_parallelism", "Threads that one op may use."),
            _flag("tensorflow_inter_op_parallelism", "Threads that run different ops in parallel."),
            _flag(
                "tensorflow_session_config_file",
                "File with session options (ConfigProto, text format).",
            ),
            _flag(
                "platform_config_file",
                "File with tag set, batching, warm-up and session options (PlatformConfigMap, text "
                "format); replaces the flags for these.",
            ),
            _own_flag(
                "engine",
                "Engine of {serve} metagraphs: tensorflow, or xla, which compiles each model as a "
                "whole where it can and needs the extra pjrt. A model's engine in the model config "
                "file replaces it.",
            ),
            _own_flag(
                "xla_cache_dir",
                "Directory of the programs that --engine=xla and PJRT devices have compiled, for "
                "the next start; off for none. Default: $TPUSERVE_CACHE_DIR, or the user's cache "
                "directory.",
            ),
            _flag("xla_cpu_compilation_enabled", "Let XLA compile models for the CPU."),
            _flag(
                "mixed_precision",
                "Set to bfloat16 to compute in bfloat16 where TensorFlow considers this safe.",
            ),
            _flag("skip_initialize_tpu", "Do not initialise the TPU system at start-up."),
            _flag(
                "num_tflite_pools",
                "Number of interpreter pools of a TensorFlow Lite model; 0 means one per CPU.",
            ),
            _flag(
                "num_tflite_interpreters_per_pool",
                "Interpreters in each TensorFlow Lite pool.",
            ),
        ),
    ),
    Section(
        "Monitoring and limits",
        (
            _flag(
                "monitoring_config_file",
                "File with the path of the metrics (MonitoringConfig, text format).",
            ),
            _own_flag(
                "metrics_drop_labels",
                "Labels that /metrics leaves out, separated by commas, for example "
                "version,signature: series that then agree are added up.",
            ),
            _own_flag(
                "predict_route",
                "Further path that predicts with --model_name. Vertex AI sets it with "
                "AIP_PREDICT_ROUTE; on SageMaker it is /invocations.",
            ),
            _own_flag(
                "health_route",
                "Further path of the readiness check. Vertex AI sets it with AIP_HEALTH_ROUTE; on "
                "SageMaker it is /ping.",
            ),
            _own_flag(
                "sagemaker_multi_model",
                "Let SageMaker load, unload and invoke models below /models; the server may start "
                "without a model. SageMaker sets it with SAGEMAKER_MULTI_MODEL.",
            ),
            _own_flag(
                "kserve_model_list",
                "Answer GET /v1/models with the names of the models, as KServe does.",
            ),
            _own_flag(
                "otlp_endpoint",
                "URL of a collector that receives OpenTelemetry's traces over gRPC, for example "
                "http://localhost:4317; empty for the URL in OTEL_EXPORTER_OTLP_ENDPOINT, if any. "
                "Needs the extra tracing.",
            ),
            _own_flag(
                "processes",
                "Number of whole servers behind the same ports, each with its own copies of the "
                "models.",
            ),
            _own_flag("access_log", "Log one line of JSON per request."),
            _own_flag(
                "log_format",
                "Format of the log on standard error: text, or json, a line of JSON each, with the "
                "IDs of traces.",
            ),
            _own_flag(
                "request_log_spool_dir",
                "Directory in which files of request logs wait for their upload to s3://, gs:// "
                "and other URLs; servers may share it. Default: request-log in "
                "$TPUSERVE_CACHE_DIR, or in the user's cache directory.",
            ),
            _own_flag(
                "shutdown_grace_seconds",
                "Seconds that requests in progress may take after SIGTERM.",
            ),
            _own_flag("api_keys_file", "File with the accepted API keys, one per line."),
            _own_flag("open_metrics", "Serve metrics without an API key."),
            _own_flag(
                "enable_model_control",
                "Let clients of the Open Inference Protocol load and unload the configured models.",
            ),
            _own_flag(
                "allowed_hosts",
                "Host names of this server, separated by commas. If given, REST requests to other "
                "names are refused, which stops DNS rebinding; IP addresses and localhost are "
                "always allowed.",
            ),
            _own_flag(
                "enable_console",
                "Show a web page with the models, their load and a form to try them, at / of the "
                "REST port.",
            ),
            _own_flag(
                "show_warm_up_requests",
                "Show the first row of a version's warm-up requests as the example of the web page "
                "and of /docs; generated values by default, because the row may be private.",
            ),
            _own_flag("open_health", "Serve health checks without an API key."),
            _own_flag("max_request_bytes", "Largest request body after decompression, in bytes."),
            _own_flag(
                "max_connections",
                "Number of connections to the gRPC port, and as many to the REST port; further "
                "ones are closed. 0 means no limit. One client address may have a quarter of the "
                "REST connections, unless --max_requests_in_flight_per_peer is 0.",
            ),
            _own_flag(
                "max_requests_in_flight",
                "Number of requests that are handled or queued at the same time; 0 means no limit.",
            ),
            _own_flag(
                "max_requests_in_flight_per_peer",
                "Number of requests of one client address (IPv6: of one /64 network) that are "
                "handled or queued at the same time; 0 means no limit, -1 a quarter of "
                "--max_requests_in_flight. Give 0 where all clients come through one proxy or load "
                "balancer, whose address is then the address of every client.",
            ),
            _own_flag(
                "max_concurrent_runs",
                "Number of requests of one model that run at the same time; 0 means one per CPU, "
                "but at least 2. A model's max_concurrent_runs in the model config file replaces "
                "it. With batching, the batch threads are the limit.",
            ),
            _own_flag(
                "max_queue",
                "Number of requests of one model that wait for a run; 0 means no limit. A model's "
                "max_queue in the model config file replaces it.",
            ),
            _own_flag(
                "max_queue_ms",
                "Milliseconds that a request may wait for a run; 0 means no limit. A model's "
                "max_queue_ms in the model config file replaces it.",
            ),
            _own_flag(
                "max_request_memory_bytes",
                "Memory that all requests may use together for bodies, parsed values and tensors, "
                "in bytes; 0 means half of the memory of the machine or of its container.",
            ),
            _own_flag(
                "default_request_timeout_ms",
                "Time limit of a request whose client sets no deadline, in milliseconds; 0 means "
                "no limit. REST clients cannot set one: the smaller of this limit and "
                "--rest_api_timeout_in_ms applies to them.",
            ),
        ),
    ),
    Section(
        "Accepted and ignored",
        (
            _ignored_flag("flush_filesystem_caches", "bool", True, "files are not kept open"),
            _ignored_flag(
                "remove_unused_fields_from_bundle_metagraph", "bool", True, "always active"
            ),
            _ignored_flag(
                "per_process_gpu_memory_fraction", "float", 0.0, "use the session options"
            ),
            _ignored_flag(
                "xla_gpu_compilation_enabled", "bool", False, "models run on a CPU or a TPU"
            ),
            _ignored_flag("use_alts_credentials", "bool", False, "use --ssl_config_file"),
            _ignored_flag(
                "thread_pool_factory_config_file", "text", "", "use the parallelism flags"
            ),
        ),
    ),
)
FLAGS = {flag.name: flag for section in SECTIONS for flag in section.flags}


def settings_from_flags(values: Mapping[str, Any], **others: Any) -> Settings:
    """Build the settings of the server from the values of flags.

    Args:
      values: flag name → value. A flag that is missing, or whose value is None, has its default.
      others: the settings that have no flag.

    Raises:
      BasePathNotFound: model_base_path is a URI of a file system that the server cannot read.
    """
    if values.get("use_alts_credentials"):
        # Refuse TensorFlow Serving's flag for ALTS, which this server does not support, instead of
        # ignoring it: a server without the requested encryption would be unsafe.
        raise InvalidSetting(
            "--use_alts_credentials is set, and this server does not support ALTS. Use "
            "--ssl_config_file, or remove the flag."
        )
    chosen = {
        name: value
        for name, value in values.items()
        if FLAGS[name].has_effect and value is not None
    }
    if "model_base_path" in chosen:
        path = chosen["model_base_path"]
        if path and not is_remote(path):
            path = local_path(path)
        chosen["model_base_path"] = path or None
    if "saved_model_tags" in chosen:
        chosen["saved_model_tags"] = tags.parse_tags(chosen["saved_model_tags"]) or None
    if "grpc_channel_arguments" in chosen:
        chosen["grpc_channel_arguments"] = channel_arguments(chosen["grpc_channel_arguments"])
    if "import_ops" in chosen:
        chosen["import_ops"] = op_imports.parse_names(chosen["import_ops"])
    return Settings(**chosen, **others)


def channel_arguments(text: str) -> tuple[tuple[str, int | str], ...]:
    """Parse the flag --grpc_channel_arguments: "name=value,name=value".

    The result holds pairs (name, value). A value that is the text of a 32-bit integer becomes an
    int.
    """
    arguments = []
    for item in text.split(","):
        name, separator, value = item.partition("=")
        if separator and name:
            arguments.append((name, _number_or_text(value)))
    return tuple(arguments)


def ignored_flags(names: Sequence[str]) -> list[str]:
    """Return the names in `names` whose flags are accepted but have no effect."""
    return [name for name in names if not FLAGS[name].has_effect]


def _number_or_text(value: str) -> int | str:
    try:
        number = int(value)
    except ValueError:
        return value
    return number if number in _INT32 else value
