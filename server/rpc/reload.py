"""HandleReloadConfigRequest: other models, without another start."""

from collections.abc import Callable
from typing import TypeAlias

from tensorflow_serving.apis import model_management_pb2

from server.config import model_file
from server.config.models import ModelServerConfig
from server.dataplane import DataPlane
from server.rpc import calls
from server.rpc.request import Request
from server.servable import State, VersionStatus
from tpuserve.errors import ModelsNotAvailable, NotFound

CounterValue: TypeAlias = Callable[[str], int | None]
"""Name of a metric, as "/tensorflow/serving/request_count" → its first value, if it has one."""


class HandleReloadConfigRequest:
    """Has a data plane serve another configuration."""

    def __init__(self, dataplane: DataPlane, counter_value: CounterValue) -> None:
        """Takes the data plane, and where metrics are read."""
        self._dataplane = dataplane
        self._counter_value = counter_value

    def __call__(self, raw: bytes, request: Request) -> bytes:
        """How the metrics that the request names have grown, once its configuration is served.

        The reply's own status says OK: a call that fails has no reply.

        Raises:
          InvalidConfig: the configuration asks for what cannot be.
          ModelsNotAvailable: a new model has failed, or has no versions.
          TpuserveError: as of `DataPlane.reload`.
        """
        message = calls.parse(model_management_pb2.ReloadConfigRequest, raw)
        before = self._values(message.metric_names)
        self._reload(model_file.of_request(message.config))
        after = self._values(message.metric_names)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        for name, value in zip(message.metric_names, after, strict=True):
            increase = value - before[len(response.metric)]
            response.metric.add(name=name, int64_value_increase=increase)
        return bytes(response.SerializeToString())

    def _reload(self, config: ModelServerConfig) -> None:
        before = self._dataplane.models()
        try:
            self._dataplane.reload(config)
        except NotFound as error:
            # A code of its own for what is not there would be taken for an answer about the
            # request itself; TensorFlow Serving has one code for all models that fail.
            after = self._dataplane.models()
            missing = [
                f"{{{{name: {name}}} due to error: {error.code.name}: {error}}}, "
                for name in config.names()
                if name not in before and not _is_available(after.get(name, []))
            ]
            raise ModelsNotAvailable(
                f"{len(missing)} model(s) did not become available: {{{''.join(missing)}}}"
            ) from error

    def _values(self, names: list[str]) -> list[int]:
        return [self._counter_value(name) or 0 for name in names]


def _is_available(versions: list[VersionStatus]) -> bool:
    return any(each.state is State.AVAILABLE for each in versions)
