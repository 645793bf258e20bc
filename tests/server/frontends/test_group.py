"""The frontends tell the metrics which models are configured."""

from pathlib import Path

from server.config.model_config import QueueLimits
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.group import FrontendGroup
from server.metrics import Metrics
from server.metrics.collectors import MAX_SERIES
from server.models.manager import Manager
from server.scheduling.run_limits import LimitTable


def test_names_that_clients_make_up_leave_series_for_configured_models(manager: Manager) -> None:
    metrics, limits = Metrics(), LimitTable()
    limits.configure({"half": QueueLimits()})
    dataplane = DataPlane(manager, run_limits=limits.find)
    settings = Settings(model_base_path=Path("/models/half"))
    FrontendGroup(settings, dataplane, metrics, lambda reason: None)
    for number in range(MAX_SERIES):
        metrics.request_done(f"made-up-{number}", "Predict", "GRPC", "NOT_FOUND", 1)
    metrics.request_done("half", "Predict", "GRPC", "OK", 1)
    assert b'request_count{model_name="half",status="OK"} 1' in metrics.exposition()
