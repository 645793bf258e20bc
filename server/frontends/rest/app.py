"""Builds the REST face out of its parts."""

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.access_log_middleware import AccessLogMiddleware
from server.frontends.rest.asgi_app import RootApp
from server.frontends.rest.openapi import app
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.v1.router import Api
from server.metrics import Metrics
from server.request_log.access_log import AccessLog


def build_rest_app(
    dataplane: DataPlane,
    settings: Settings | None = None,
    *,
    metrics: Metrics | None = None,
    keys: ApiKeys | None = None,
    admission: AdmissionController | None = None,
    monitoring_path: str | None = None,
) -> RootApp | AccessLogMiddleware:
    """The ASGI application that answers from a data plane.

    Args:
      settings: None for the defaults of the flags.
      metrics: where requests are counted that never reach the data plane, and what is told at
        `monitoring_path`.
      keys: who may ask; None for everybody.
      limits: what each inference is held against, and what readiness is told by. Not to be given
        to the data plane too: that would count each request twice.
      monitoring_path: "/monitoring/prometheus/metrics", say; None for nowhere.
    """
    options = RestConfig.from_settings(settings)
    front = RootApp(
        Api(dataplane, options, metrics, admission),
        dataplane,
        app.build(dataplane, keys is not None),
        options,
        metrics=metrics,
        keys=keys,
        admission=admission,
        monitoring_path=monitoring_path,
    )
    return AccessLogMiddleware(front, AccessLog()) if options.access_log else front
