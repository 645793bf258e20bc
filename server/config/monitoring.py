"""Reads the additional URL path of the metrics from the file of --monitoring_config_file."""

from pathlib import Path

from server.config import messages, textproto

DEFAULT_PATH = "/monitoring/prometheus/metrics"


def read_metrics_path(path: Path) -> str | None:
    """Return the URL path at which the metrics are also served, in addition to /metrics.

    The result is None if the file does not enable Prometheus metrics.

    Args:
      path: a file with a MonitoringConfig in protobuf's text form.
    """
    config = textproto.read_message(path, messages.new_message("MonitoringConfig"))
    if not config.prometheus_config.enable:
        return None
    return config.prometheus_config.path or DEFAULT_PATH
