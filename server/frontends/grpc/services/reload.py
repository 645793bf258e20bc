"""HandleReloadConfigRequest: other models, without another start."""

from collections.abc import Callable
from typing import TypeAlias

from tensorflow_serving.apis import model_management_pb2

from server.config import model_file
from server.dataplane import DataPlane
from server.frontends.grpc.services import call_handler
from server.frontends.grpc.services.call_context import CallContext

CounterValue: TypeAlias = Callable[[str], int | None]
"""Name of a metric, as "/tensorflow/serving/request_count" → its first value, if it has one."""


class HandleReloadConfigRequest:
    """Has a data plane serve another configuration."""

    def __init__(self, dataplane: DataPlane, counter_value: CounterValue) -> None:
        """Takes the data plane, and where metrics are read."""
        self._dataplane = dataplane
        self._counter_value = counter_value

    def __call__(self, raw: bytes, request: CallContext) -> bytes:
        """How the metrics that the request names have grown, once its configuration is served.

        The reply's own status says OK: a call that fails has no reply.

        Raises:
          InvalidConfig: the configuration asks for what cannot be.
          ModelsNotAvailable: a new model has failed, or has no versions.
          TpuserveError: as of `DataPlane.reload`.
        """
        message = call_handler.parse(model_management_pb2.ReloadConfigRequest, raw)
        before = self._values(message.metric_names)
        self._dataplane.reload(model_file.from_reload_request(message.config))
        after = self._values(message.metric_names)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        for name, value in zip(message.metric_names, after, strict=True):
            increase = value - before[len(response.metric)]
            response.metric.add(name=name, int64_value_increase=increase)
        return bytes(response.SerializeToString())

    def _values(self, names: list[str]) -> list[int]:
        return [self._counter_value(name) or 0 for name in names]
