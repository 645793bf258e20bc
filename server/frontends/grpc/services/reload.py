"""The method HandleReloadConfigRequest: replaces the configuration of models at run time.

Source: tensorflow_serving/apis/model_management.proto, model_service_impl.cc.
"""

from collections.abc import Iterable

from tensorflow_serving.apis import model_management_pb2

from server.config import model_file
from server.dataplane import DataPlane
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.parsing import parse_message
from server.metrics import Metrics
from tpuserve.errors import TpuserveError


class HandleReloadConfigRequest:
    """The method HandleReloadConfigRequest: replaces the configuration of the served models.

    Args:
      metrics: the registry that counts the reloads, and has the counters that requests name in
        `metric_names`; None for no metrics.
    """

    def __init__(self, dataplane: DataPlane, metrics: Metrics | None) -> None:
        self._dataplane = dataplane
        self._metrics = Metrics() if metrics is None else metrics

    def __call__(self, raw: bytes | memoryview, call: CallContext) -> bytes:
        """Apply a configuration, and return a serialised ReloadConfigResponse.

        For each counter that the request names in `metric_names`, the response has the increase
        during the reload.
        """
        message = parse_message(model_management_pb2.ReloadConfigRequest, raw)
        before = self._counter_values(message.metric_names)
        try:
            self._dataplane.reload(model_file.from_reload_request(message.config))
        except TpuserveError as error:
            self._metrics.reloaded(error.code.name)
            raise
        self._metrics.reloaded("OK")
        after = self._counter_values(message.metric_names)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        for name, old, new in zip(message.metric_names, before, after, strict=True):
            response.metric.add(name=name, int64_value_increase=new - old)
        return bytes(response.SerializeToString())

    def _counter_values(self, names: Iterable[str]) -> list[int]:
        return [self._metrics.first_value(name) or 0 for name in names]
