"""The second path of the metrics, from --monitoring_config_file."""

from pathlib import Path

from server.config import messages, textproto

DEFAULT_PATH = "/monitoring/prometheus/metrics"


def read_metrics_path(path: Path) -> str | None:
    """Return the URL path of the metrics beside /metrics; None where the file enables none.

    A file that names no path gets TensorFlow Serving's default, `DEFAULT_PATH`.

    Args:
      path: a file with a MonitoringConfig in protobuf's text form.

    Raises:
      InvalidConfig: the file cannot be read or parsed.
    """
    config = textproto.read_message(path, messages.new_message("MonitoringConfig"))
    if not config.prometheus_config.enable:
        return None
    return config.prometheus_config.path or DEFAULT_PATH
