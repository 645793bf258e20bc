"""The settings of a server: one field per command-line flag. Creating the object checks them."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from server.config.byte_size import parse_bytes
from server.config.model_config import ENGINES, TENSORFLOW_ENGINE, ModelConfig
from tpuserve import validation
from tpuserve.errors import InvalidSetting
from tpuserve.tags import TagSet

DEFAULT_PORT = 8500
DEFAULT_REST_API_PORT = 8501
DEFAULT_HOST = "0.0.0.0"
DEFAULT_MODEL_NAME = "default"

# The default number of threads that load models: with two threads, one model that loads slowly does
# not delay the next one, and enough processor time remains for requests.
LOAD_THREADS = 2

# The value of enable_batching with which each model is batched only where that is safe and faster.
AUTO = "auto"

LOG_TEXT, LOG_JSON = LOG_FORMATS = ("text", "json")

SIGNATURES_OFF, SIGNATURES_REQUIRED = SIGNATURE_POLICIES = ("off", "require")

_MAX_PORT = 65535
_DEFAULT_THREADS = 4 * (os.cpu_count() or 1)


@dataclass(frozen=True)
class Settings:
    """The settings of one server; each attribute has the name of its flag.

    `server.config.flags` describes every flag.

    Attributes:
      models: the models that the arguments of `tpuserve serve` name, in place of those of
        model_base_path and model_config_file.
      model_base_path: an absolute path or a URI of the model's directory, which holds one numbered
        directory per version. None if model_config_file lists the models.
      port: the gRPC port; 0 turns gRPC off.
      rest_api_port: the REST port; 0 turns REST off.
      processes: the number of whole servers that share the ports, each with its own copies of the
        models.
      host: the IPv4 or IPv6 address to listen on; 0.0.0.0 means all IPv4 and IPv6 addresses.
      saved_model_tags: the exact tag set of the metagraph to serve. If None, the server chooses the
        metagraph that fits the hardware.
      grpc_channel_arguments: pairs (name, value) of gRPC channel arguments. A value is an int if
        its text is a 32-bit integer, else a string.
      max_constant_bytes: the memory, in bytes, that a model's constants and the tensors computed
        from constants may need in addition to the size of the constants in the SavedModel's files;
        0 for no limit.
      enable_batching: whether requests are combined into batches; AUTO to batch, of each model, the
        signatures that a check at its load allows.
      engine: the runtime of {serve} metagraphs: "tensorflow" or "xla". With "xla", TensorFlow still
        runs the metagraphs that XLA cannot run.
      xla_cache_dir: the directory in which executables that XLA has compiled are kept; empty for
        the user's cache directory, "off" to keep none.
      max_request_bytes: the largest request body after decompression, in bytes.
      max_request_memory_bytes: the memory that all requests may use together, in bytes; 0 for half
        of the memory of the machine or of its container.
      max_connections: the largest number of connections to each port; 0 for no limit.
      max_requests_in_flight: the largest number of requests in flight; 0 for no limit.
      max_requests_in_flight_per_peer: the largest number of requests in flight from one client
        address; 0 for no limit, -1 for a quarter of max_requests_in_flight.
      default_request_timeout_ms: the time limit, in milliseconds, of requests whose client sets no
        time limit; 0 for no limit.
      predict_route: an additional URL path of the REST port at which the model `model_name`
        predicts; empty for none.
      health_route: an additional URL path of the readiness check; empty for none.
      sagemaker_multi_model: whether SageMaker may load and unload models with requests to the URL
        path /models; the server can then start without a model.
      otlp_endpoint: the URL of an OTLP/gRPC receiver, to which the spans of traces are exported;
        empty for the receiver that OpenTelemetry's environment variables name, or for no traces if
        they name none.
      allowed_hosts: the names, separated by commas, that the header Host of a REST request may
        have, beside IP addresses and localhost; empty for any.
      enable_console: whether the REST port shows a web page for operators at its root path.
      show_warm_up_requests: whether the server shows users a version's warm-up requests as example
        requests, although they can be private. If False, it shows examples with generated values.
      import_ops: Python packages and paths of libraries that register ops.
      allow_links: whether symbolic links may point to files outside of a model's base path.
      model_cache_dir: the directory to which versions are downloaded; empty for a directory in the
        user's cache directory.
      log_format: the format of the server's own log, "text" or "json".
      request_log_spool_dir: the directory in which files of request logs wait for their upload;
        empty for a directory in the user's cache directory.
      model_cache_max_bytes: the largest size of all downloaded versions together, in bytes; 0 for
        no limit.
      lazy_load: whether a model is loaded by its first request, unless it is pinned.
      lazy_load_timeout: the longest wait of a request for the load of its model, in seconds; 0 for
        no limit.
      max_model_memory: the memory that all loaded models may need, as a text such as "8GB"; empty
        for no limit.
    """

    model_base_path: Path | str | None = None
    model_name: str = DEFAULT_MODEL_NAME
    port: int = DEFAULT_PORT
    rest_api_port: int = DEFAULT_REST_API_PORT
    host: str = DEFAULT_HOST
    saved_model_tags: TagSet | None = None

    grpc_socket_path: str = ""
    grpc_channel_arguments: tuple[tuple[str, int | str], ...] = ()
    grpc_max_threads: int = _DEFAULT_THREADS
    rest_api_num_threads: int = _DEFAULT_THREADS
    rest_api_timeout_in_ms: int = 30_000
    rest_api_enable_cors_support: bool = False
    ssl_config_file: str = ""

    model_config_file: str = ""
    model_config_file_poll_wait_seconds: float = 0
    allow_version_labels_for_unavailable_models: bool = False
    file_system_poll_wait_seconds: float = 1
    model_signature_policy: str = SIGNATURES_OFF
    model_signing_key: str = ""
    model_cache_dir: str = ""
    model_cache_max_bytes: int = 0
    fail_if_no_model_versions_found: bool = False
    base_paths_required: bool = False
    models: tuple[ModelConfig, ...] = ()
    load_timeout_seconds: float = 600
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    num_load_threads: int = 0
    num_unload_threads: int = 0
    lazy_load: bool = False
    lazy_load_timeout: float = 60
    max_model_memory: str = ""

    enable_batching: bool | str = AUTO
    batching_parameters_file: str = ""
    enable_per_model_batching_parameters: bool = False
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 0

    tensorflow_session_parallelism: int = 0
    tensorflow_intra_op_parallelism: int = 0
    tensorflow_inter_op_parallelism: int = 0
    tensorflow_session_config_file: str = ""
    engine: str = TENSORFLOW_ENGINE
    xla_cache_dir: str = ""
    xla_cpu_compilation_enabled: bool = False
    mixed_precision: str = ""
    platform_config_file: str = ""
    skip_initialize_tpu: bool = False
    prefer_tflite_model: bool = False
    num_tflite_pools: int = 0
    num_tflite_interpreters_per_pool: int = 1

    predict_route: str = ""
    health_route: str = ""
    kserve_model_list: bool = False
    sagemaker_multi_model: bool = False
    monitoring_config_file: str = ""
    metrics_drop_labels: str = ""
    otlp_endpoint: str = ""
    enable_signature_method_name_check: bool = False
    enable_serialization_as_tensor_content: bool = False
    enable_grpc_healthcheck_service: bool = False
    enable_profiler: bool = True
    enable_model_control: bool = False
    allowed_hosts: str = ""
    enable_console: bool = True
    show_warm_up_requests: bool = False

    processes: int = 1
    fallback_to_cpu: bool = False
    shutdown_grace_seconds: float = 30
    api_keys_file: str = ""
    open_metrics: bool = False
    open_health: bool = False
    forbid_unsafe_ops: bool = True
    import_ops: tuple[str, ...] = ()
    allow_links: bool = False
    max_constant_bytes: int = 1 << 30
    access_log: bool = False
    log_format: str = LOG_TEXT
    request_log_spool_dir: str = ""
    max_request_bytes: int = 256 << 20
    max_request_memory_bytes: int = 0
    max_connections: int = 10_000
    max_requests_in_flight: int = 1000
    max_requests_in_flight_per_peer: int = -1
    max_concurrent_runs: int = 0
    max_queue: int = 500
    max_queue_ms: int = 0
    default_request_timeout_ms: int = 0

    def __post_init__(self) -> None:
        """Check every value, and the values against each other."""
        self._check_ports()
        if not self.host:
            raise InvalidSetting("--host is empty. Give the address to listen on, as 0.0.0.0.")
        if not self.model_name:
            raise InvalidSetting("--model_name is empty. Give the name that clients will use.")
        if self.engine not in ENGINES:
            raise InvalidSetting(f"--engine is {self.engine!r}. Give {' or '.join(ENGINES)}.")
        if self.log_format not in LOG_FORMATS:
            raise InvalidSetting(
                f"--log_format is {self.log_format!r}. Give {' or '.join(LOG_FORMATS)}."
            )
        self._check_models()
        validation.check_number("--max_model_memory", self.max_model_bytes, least=0)
        self._check_signatures()
        self._check_batching()
        self._check_parallelism()
        self._check_otlp_endpoint()
        self._check_routes()
        self._check_processes()
        for name in _NON_NEGATIVE:
            validation.check_number(f"--{name}", getattr(self, name), least=0)
        if self.max_requests_in_flight_per_peer < -1:
            raise InvalidSetting(
                f"--max_requests_in_flight_per_peer is {self.max_requests_in_flight_per_peer}. "
                f"Give 0 or more, or -1 for a quarter of --max_requests_in_flight."
            )

    @property
    def max_model_bytes(self) -> int:
        """The memory that all loaded models may need, in bytes; 0 for no limit."""
        text = self.max_model_memory
        return parse_bytes("--max_model_memory", text) if text else 0

    @property
    def peer_limit(self) -> int:
        """The largest number of requests in flight from one client address; 0 for no limit."""
        if self.max_requests_in_flight_per_peer >= 0:
            return self.max_requests_in_flight_per_peer
        return -(-self.max_requests_in_flight // 4)

    def _check_ports(self) -> None:
        _check_port("--port", self.port)
        _check_port("--rest_api_port", self.rest_api_port)
        if self.port == self.rest_api_port and not (self.port == 0 and self.grpc_socket_path):
            raise InvalidSetting(_same_ports_message(self.port))

    def _check_models(self) -> None:
        path = self.model_base_path
        has_models = self.models or path is not None or self.model_config_file
        if not has_models and not self.sagemaker_multi_model:
            raise InvalidSetting(
                "there is no model to serve: --model_base_path and --model_config_file are empty. "
                "Give the path of a model, as: tpuserve serve /models/half"
            )
        if isinstance(path, Path) and not path.is_absolute():
            raise InvalidSetting(
                f"--model_base_path must be an absolute path (got {_format_path(path)}). Give the "
                f"absolute path of the directory that holds the version directories."
            )

    def _check_signatures(self) -> None:
        policy = self.model_signature_policy
        if policy not in SIGNATURE_POLICIES:
            raise InvalidSetting(
                f"--model_signature_policy is {policy!r}. Give {' or '.join(SIGNATURE_POLICIES)}."
            )
        if (policy == SIGNATURES_REQUIRED) != bool(self.model_signing_key):
            raise InvalidSetting(
                f"--model_signature_policy is {policy} and --model_signing_key is "
                f"{self.model_signing_key or 'empty'}. Give --model_signature_policy=require "
                f"together with the file of the public key."
            )

    def _check_batching(self) -> None:
        if self.enable_batching not in (True, False, AUTO):
            raise InvalidSetting(
                f"--enable_batching is {self.enable_batching!r}. Give true, false or {AUTO}."
            )
        if self.platform_config_file:
            # The platform config file replaces the flags for batching, so do not check them.
            return
        if self.batching_parameters_file and self.enable_batching is not True:
            raise InvalidSetting(
                "--batching_parameters_file supplied without specifying --enable_batching"
            )
        if self.enable_per_model_batching_parameters and self.enable_batching is not True:
            raise InvalidSetting(
                "--enable_per_model_batching_parameters supplied without specifying "
                "--enable_batching"
            )

    def _check_routes(self) -> None:
        for name in ("predict_route", "health_route"):
            path = getattr(self, name)
            if path and not (path.startswith("/") and path.isascii() and path.isprintable()):
                raise InvalidSetting(f"--{name} is {path!r}. Give a path, as /predict.")
        if self.predict_route and self.predict_route == self.health_route:
            raise InvalidSetting(
                f"--predict_route and --health_route are both {self.predict_route}. Give each a "
                f"path of its own."
            )

    def _check_processes(self) -> None:
        validation.check_number("--processes", self.processes, least=1)
        for name in ("enable_model_control", "sagemaker_multi_model"):
            if self.processes > 1 and getattr(self, name):
                raise InvalidSetting(
                    f"--processes is {self.processes}, and --{name} lets a client load models, in "
                    f"the one process that gets its request. Give --processes=1, or list the "
                    f"models in --model_config_file."
                )

    def _check_otlp_endpoint(self) -> None:
        if self.otlp_endpoint and not is_url_of_host(self.otlp_endpoint):
            raise InvalidSetting(
                f"--otlp_endpoint is {self.otlp_endpoint!r}, which is no URL of a host. Give the "
                f"address where the collector receives OTLP over gRPC, as http://localhost:4317."
            )

    def _check_parallelism(self) -> None:
        if self.platform_config_file:
            # The platform config file replaces the flags for parallelism, so do not check them.
            return
        thread_counts = (
            self.tensorflow_session_parallelism,
            self.tensorflow_intra_op_parallelism,
            self.tensorflow_inter_op_parallelism,
        )
        if min(thread_counts) > 0:
            raise InvalidSetting(
                "--tensorflow_session_parallelism, --tensorflow_intra_op_parallelism and "
                "--tensorflow_inter_op_parallelism are all set. Give the first, for both "
                "kinds of threads, or the other two."
            )


def is_url_of_host(text: str) -> bool:
    """Return whether a text is a URL with the scheme http or https and the name of a host."""
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


_NON_NEGATIVE = (
    "model_cache_max_bytes",
    "grpc_max_threads",
    "rest_api_num_threads",
    "rest_api_timeout_in_ms",
    "lazy_load_timeout",
    "load_timeout_seconds",
    "max_num_load_retries",
    "load_retry_interval_micros",
    "num_load_threads",
    "num_unload_threads",
    "num_request_iterations_for_warmup",
    "num_tflite_pools",
    "num_tflite_interpreters_per_pool",
    "shutdown_grace_seconds",
    "max_constant_bytes",
    "max_request_bytes",
    "max_request_memory_bytes",
    "max_connections",
    "max_requests_in_flight",
    "max_concurrent_runs",
    "max_queue",
    "max_queue_ms",
    "default_request_timeout_ms",
)


def _check_port(flag: str, port: int) -> None:
    if not 0 <= port <= _MAX_PORT:
        raise InvalidSetting(f"{flag} is {port}. Give a port from 1 to {_MAX_PORT}, or 0 for off.")


def _same_ports_message(port: int) -> str:
    if port == 0:
        return "--port and --rest_api_port are both 0, so both are off. Give a port to one of them."
    return f"--port and --rest_api_port are both {port}. Give each a port of its own."


def _format_path(path: Path) -> str:
    # Show an empty path as "empty" in error messages, because str(Path("")) is ".", which the user
    # did not type.
    return "empty" if path == Path() else repr(str(path))
