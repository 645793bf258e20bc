"""The method HandleReloadConfigRequest: replaces the configuration of models at run time.

Source: tensorflow_serving/apis/model_management.proto, model_service_impl.cc.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tensorflow_serving.apis import model_management_pb2

from server.config import model_file
from server.dataplane import DataPlane
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.call_handler import parse_message

CounterValue: TypeAlias = Callable[[str], int | None]
"""A function that returns the value of a metric, given the metric's name.

An example of a name is "/tensorflow/serving/request_count". The value is that of the metric's first
time series. The function returns None if no metric has the name.
"""


class HandleReloadConfigRequest:
    """The method HandleReloadConfigRequest: replaces the model configuration of a data plane."""

    def __init__(self, dataplane: DataPlane, counter_value: CounterValue) -> None:
        """Create the method.

        Args:
          dataplane: applies the configuration.
          counter_value: returns the current value of the counter with a given metric name; None if
            there is no such counter.
        """
        self._dataplane = dataplane
        self._counter_value = counter_value

    def __call__(self, raw: bytes, call: CallContext) -> bytes:
        """Apply a ReloadConfigRequest, and return how much its `metric_names` grew meanwhile.

        The response's field `status` is always OK: a call that fails has no response message.

        Raises:
          InvalidConfig: the configuration is invalid.
          ModelsNotAvailable: a new model has failed to load, or has no versions.
          TpuserveError: any other error of `DataPlane.reload`.
        """
        message = parse_message(model_management_pb2.ReloadConfigRequest, raw)
        before = self._counter_values(message.metric_names)
        self._dataplane.reload(model_file.from_reload_request(message.config))
        after = self._counter_values(message.metric_names)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        for name, old, new in zip(message.metric_names, before, after, strict=True):
            response.metric.add(name=name, int64_value_increase=new - old)
        return bytes(response.SerializeToString())

    def _counter_values(self, names: Iterable[str]) -> list[int]:
        return [self._counter_value(name) or 0 for name in names]
