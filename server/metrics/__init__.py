"""The metrics of a server, which Prometheus scrapes."""

from server.metrics.metrics import Metrics as Metrics
