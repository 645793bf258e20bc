"""Builds the Ray Serve application that serves models, and the options of its gRPC proxies."""

import asyncio
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ray import serve
from ray.serve.config import gRPCOptions

from server.admission.memory_budget import MemoryBudget
from server.config.settings import DEFAULT_PORT, Settings
from server.engine import Engine
from server.frontends import base
from server.frontends.grpc import errors
from server.frontends.grpc.call_context import CallContext
from server.metrics import Metrics
from server.process import memory_limit
from server.ray.settings import make_settings
from server.request import CLOCK
from server.servables.pending import Pending
from tpuserve.errors import InvalidSetting, TpuserveError, Unavailable
from tpuserve.files.uris import absolute_path_or_uri

# The longest times, in seconds, that a stopped replica waits: _LOG_SECONDS for the request log to
# write its entries, and _UNLOAD_SECONDS for the end of the runs that still use a model.
_LOG_SECONDS = 5
_UNLOAD_SECONDS = 5


class MessageBytes:
    """A serialised response, with the interface of a protobuf message that Ray needs.

    Ray calls only the method `SerializeToString` of the messages that a replica returns.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content

    def SerializeToString(self) -> bytes:  # noqa: D102
        return self._content


class Replica:
    """Answers TensorFlow Serving's gRPC calls, which Ray's proxies forward to the replicas.

    The methods with capital letters have the names of the gRPC methods. Each takes the request
    message and Ray's gRPC context of the call, and returns the serialised response.

    Args:
      flags: the flags of `tpuserve serve` that `make_settings` takes: name → value.
      threads: the largest number of calls that are decoded and run at the same time; calls that
        wait for a batch need no thread.
    """

    def __init__(self, flags: Mapping[str, Any], threads: int) -> None:
        settings = make_settings(flags)
        self._engine = Engine(settings, None, Metrics())
        self._engine.check_models()
        base.import_tensorflow_and_grpc_modules(settings)
        self._engine.load_models()
        self._engine.mark_serving()
        self._memory = MemoryBudget(
            # By default, let requests take half of the memory, and leave the other half to
            # TensorFlow and the models.
            settings.max_request_memory_bytes or memory_limit.usable_memory_bytes() // 2
        )
        # In seconds; infinite for no limit.
        self._time_limit = settings.default_request_timeout_ms / 1000 or math.inf
        self._functions = _make_functions(self._engine, settings)
        self._threads = ThreadPoolExecutor(threads, "call")

    async def Predict(self, request: Any, grpc_context: Any) -> Any:
        """Answer a PredictRequest: run a signature on tensors."""
        return await self._call("Predict", request, grpc_context)

    async def Classify(self, request: Any, grpc_context: Any) -> Any:
        """Answer a ClassificationRequest: classify tf.train.Examples."""
        return await self._call("Classify", request, grpc_context)

    async def Regress(self, request: Any, grpc_context: Any) -> Any:
        """Answer a RegressionRequest: compute a number for each tf.train.Example."""
        return await self._call("Regress", request, grpc_context)

    async def MultiInference(self, request: Any, grpc_context: Any) -> Any:
        """Answer a MultiInferenceRequest: run several signatures on the same tf.train.Examples."""
        return await self._call("MultiInference", request, grpc_context)

    async def GetModelMetadata(self, request: Any, grpc_context: Any) -> Any:
        """Answer a GetModelMetadataRequest: return the signatures of a model."""
        return await self._call("GetModelMetadata", request, grpc_context)

    async def GetModelStatus(self, request: Any, grpc_context: Any) -> Any:
        """Answer a GetModelStatusRequest: return the states of the versions of a model.

        The states are those in this replica.
        """
        return await self._call("GetModelStatus", request, grpc_context)

    def check_health(self) -> None:
        """Raise an error unless each model has a version that can answer requests.

        Ray calls this method regularly, and replaces a replica that raises an error.
        """
        for name in self._engine.model_names:
            statuses = self._engine.dataplane.status(name, None)
            if not any(status.state.name == "AVAILABLE" for status in statuses):
                raise Unavailable(f"no version of {name} is available")

    def __del__(self) -> None:
        """Close the models. Ray calls this when a stopped replica has answered its last request."""
        engine = self.__dict__.pop("_engine", None)
        if engine is not None:
            engine.stop_polling()
            engine.close(_LOG_SECONDS, _UNLOAD_SECONDS)

    async def _call(self, method: str, request: Any, grpc_context: Any) -> MessageBytes:
        """Run the implementation of a gRPC method in a thread, and return its response."""
        loop, call = asyncio.get_running_loop(), CallContext()
        with self._memory.reserve() as memory:
            deadline = time.monotonic() + self._time_limit
            call.request = replace(call.request, deadline=deadline, memory=memory)
            CLOCK.watch(call.request)
            try:
                result = await loop.run_in_executor(
                    self._threads, self._functions[method], request.SerializeToString(), call
                )
                if isinstance(result, Pending):
                    is_finished = asyncio.Event()
                    result.add_done_callback(lambda: loop.call_soon_threadsafe(is_finished.set))
                    await is_finished.wait()
                    result = result.finish()
            except TpuserveError as error:
                grpc_context.set_code(errors.GRPC_STATUS[error.code])
                grpc_context.set_details(errors.truncate_message(str(error)))
                raise
            finally:
                # If the client has cancelled the call, stop the work that still runs for it. If the
                # call is answered, this has no effect.
                call.request.cancellation.cancel()
                CLOCK.unwatch(call.request)
        return MessageBytes(result)


def _make_functions(
    engine: Engine, settings: Settings
) -> dict[str, Callable[[bytes, CallContext], bytes | Pending[bytes]]]:
    """Return the implementations of the gRPC methods by their names, such as "Predict"."""
    from server.frontends.grpc.services import inference
    from server.frontends.grpc.services.model_service import GetModelMetadata, GetModelStatus
    from server.frontends.grpc.services.predict import Predict

    dataplane = engine.dataplane
    return {
        "Predict": Predict(
            dataplane,
            as_content=settings.enable_serialization_as_tensor_content,
            max_tensor_bytes=settings.max_request_bytes,
        ),
        "Classify": inference.classify_function(dataplane),
        "Regress": inference.regress_function(dataplane),
        "MultiInference": inference.multi_inference_function(dataplane),
        "GetModelMetadata": GetModelMetadata(dataplane),
        "GetModelStatus": GetModelStatus(dataplane),
    }


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
