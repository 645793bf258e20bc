"""What a server counts, for Prometheus to fetch."""

from server.metrics.metrics import Metrics as Metrics
from server.metrics.registry import Registry as Registry
