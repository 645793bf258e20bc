"""Builds the Ray Serve application that serves models, and the options of its gRPC proxies."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ray import serve
from ray.serve.config import gRPCOptions

from server.config.settings import DEFAULT_PORT
from server.ray.replica import Replica
from server.ray.settings import make_settings
from tpuserve.errors import InvalidSetting
from tpuserve.files.uris import absolute_path_or_uri

_SERVICERS = ("prediction_service", "model_service")
# The defaults of the options of `ray.serve.deployment`. Ray's own default for max_ongoing_requests,
# 5 for each replica, would keep batches small.
_OPTIONS: Mapping[str, Any] = {
    "name": "tpuserve",
    "max_ongoing_requests": 64,
    "graceful_shutdown_timeout_s": 30,
}
# The largest number of threads of a replica. It may be smaller than max_ongoing_requests, because
# calls that wait for a batch need no thread.
_MOST_THREADS = 32


def deployment(
    model_base_path: str | os.PathLike[str] | None = None,
    *,
    options: Mapping[str, Any] = MappingProxyType({}),
    **flags: Any,
) -> serve.Application:
    """Return a Ray Serve application that serves models over TensorFlow Serving's gRPC API.

    Args:
      model_base_path: the directory of the versions of the model, on every node, or a URI such as
        s3://models/digits; None if the flag model_config_file names a file that lists the models.
      options: options of `ray.serve.deployment`, such as num_replicas=2, or autoscaling_config,
        with which Ray chooses the number of replicas by the requests in flight and in queues.
      flags: flags of `tpuserve serve` for the models and for batching, such as model_name="digits"
        and enable_batching=True.

    Raises:
      BasePathNotFound: the base path is a URI of a file system that the server cannot read.
    """
    if model_base_path is not None:
        flags["model_base_path"] = absolute_path_or_uri(model_base_path)
    make_settings(flags)
    options = {**_OPTIONS, **options}
    try:
        described = serve.deployment(Replica, **options)
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"Ray refuses the options {options}: {error}. Give options of ray.serve.deployment."
        ) from error
    return described.bind(flags, min(options["max_ongoing_requests"], _MOST_THREADS))


def build(arguments: Mapping[str, Any]) -> serve.Application:
    """Return the Ray Serve application that a config file of Ray Serve describes.

    The config file names this function in its field `import_path`.
    """
    return deployment(**arguments)


def grpc_options(port: int = DEFAULT_PORT) -> gRPCOptions:
    """Return the options with which Ray's proxies accept TensorFlow Serving's gRPC calls.

    They are the argument `grpc_options` of `ray.serve.start`.
    """
    functions = [
        f"tensorflow_serving.apis.{name}_pb2_grpc.add_{_camel_case(name)}Servicer_to_server"
        for name in _SERVICERS
    ]
    return gRPCOptions(port=port, grpc_servicer_functions=functions)


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
