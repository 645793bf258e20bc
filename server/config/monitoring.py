"""Whether and where metrics are shown, from --monitoring_config_file."""

from pathlib import Path

from server.config import messages, textproto

DEFAULT_PATH = "/monitoring/prometheus/metrics"


def read(path: Path) -> str | None:
    """The URL path of the metrics, that of TensorFlow Serving by default; None if they are off.

    Raises:
      InvalidConfig: the file cannot be read, or is no MonitoringConfig in text form.
    """
    proto = textproto.parse(textproto.read(path), messages.new("MonitoringConfig"), path)
    if not proto.prometheus_config.enable:
        return None
    return proto.prometheus_config.path or DEFAULT_PATH
