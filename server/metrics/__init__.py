"""The metrics of a server, for Prometheus to scrape."""

from server.metrics.metrics import Metrics as Metrics
from server.metrics.registry import Registry as Registry
