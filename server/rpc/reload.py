"""HandleReloadConfigRequest: other models, without another start."""

from collections.abc import Callable
from typing import TypeAlias

from tensorflow_serving.apis import model_management_pb2

from server.config import model_file
from server.dataplane import DataPlane
from server.rpc import calls

CounterValue: TypeAlias = Callable[[str], int | None]
"""Name of a metric, as "/tensorflow/serving/request_count" → its first value, if it has one."""


class HandleReloadConfigRequest:
    """Has a data plane serve another configuration."""

    def __init__(self, dataplane: DataPlane, counter_value: CounterValue) -> None:
        """Takes the data plane, and where metrics are read."""
        self._dataplane = dataplane
        self._counter_value = counter_value

    def __call__(self, raw: bytes, timeout_ms: float | None) -> bytes:
        """How the metrics that the request names have grown, once its configuration is served.

        The reply's own status says OK: a call that fails has no reply.

        Raises:
          InvalidConfig: the configuration asks for what cannot be.
          TpuserveError: as of `DataPlane.reload`.
        """
        request = calls.parse(model_management_pb2.ReloadConfigRequest, raw)
        before = self._values(request.metric_names)
        self._dataplane.reload(model_file.of_request(request.config))
        after = self._values(request.metric_names)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        for name, value in zip(request.metric_names, after, strict=True):
            increase = value - before[len(response.metric)]
            response.metric.add(name=name, int64_value_increase=increase)
        return bytes(response.SerializeToString())

    def _values(self, names: list[str]) -> list[int]:
        return [self._counter_value(name) or 0 for name in names]
