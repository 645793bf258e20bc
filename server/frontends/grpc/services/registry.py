"""The list of all gRPC services that the server can offer."""

from server.frontends.grpc.services.health import HealthService
from server.frontends.grpc.services.open_inference.service import (
    OpenInferenceService,
    OpenInferenceStatusService,
)
from server.frontends.grpc.services.profiler import ProfilerService
from server.frontends.grpc.services.reflection.service import ReflectionService
from server.frontends.grpc.services.service import GrpcService
from server.frontends.grpc.services.serving_services import ModelService, PredictionService

SERVICE_TYPES: tuple[type[GrpcService], ...] = (
    PredictionService,
    ModelService,
    OpenInferenceService,
    OpenInferenceStatusService,
    ProfilerService,
    HealthService,
    ReflectionService,
)
"""The classes of all services, including the services that the settings can disable."""
