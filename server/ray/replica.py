"""The replica of a Ray Serve deployment, which loads models and answers gRPC calls."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from server.admission.memory_budget import MemoryBudget
from server.config.settings import Settings
from server.engine import Engine
from server.frontends import base
from server.frontends.grpc import errors
from server.frontends.grpc.call_context import CallContext
from server.metrics import Metrics
from server.process import memory_limit
from server.ray.settings import make_settings
from server.request import CLOCK
from server.servables.pending import Pending
from tpuserve.errors import TpuserveError, Unavailable

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
