"""What stands between a request and its model, and what warms a model up."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from server.config.settings import Settings
from server.metrics import Metrics
from server.models.servable_loader import MakeRunner, WarmUp
from server.servables.servable import Model

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig


def _nothing() -> None:
    """Closes what there is none of."""


def batching(
    settings: Settings, platform: "PlatformConfig | None", metrics: Metrics
) -> tuple[MakeRunner, Callable[[], None]]:
    """What batches the requests of each version, and what closes it all."""
    if not settings.enable_batching:
        # Nothing stands between a request and its model.
        return (lambda model, directory, name: model), _nothing
    from server.batching.runner import BatchingRunnerFactory
    from server.config import batching_parameters

    file = settings.batching_parameters_file
    found = platform.batching if platform is not None else None
    if found is None:
        found = (
            batching_parameters.read_batching_parameters(Path(file))
            if file
            else batching_parameters.BatchingParameters()
        )
    runners = BatchingRunnerFactory(
        found,
        metrics=metrics,
        per_model=settings.enable_per_model_batching_parameters,
    )
    return runners.wrap, runners.close


def warm_up(
    settings: Settings,
    platform: "PlatformConfig | None",
    metrics: Metrics,
    aside: Callable[[Callable[[], None]], None],
) -> WarmUp | None:
    """What runs a version's warm-up records, by `aside`; None where they are to be left alone."""
    if not settings.enable_model_warmup:
        return None
    from server.warmup import WarmUp as WarmupReplayer

    threads = platform.warm_up_threads if platform is not None else 1

    def run(model: Model, directory: Path) -> None:
        records = WarmupReplayer(
            settings.num_request_iterations_for_warmup or _cores_to_warm(model),
            metrics,
            threads=threads,
            check_method_names=settings.enable_signature_method_name_check,
        )
        aside(lambda: records(model, directory))

    return run


def _cores_to_warm(model: Model) -> int:
    """How often a request is run so that each core of a real TPU has run it."""
    if getattr(model.choice, "device", "CPU") != "TPU":
        return 1
    from tpuserve import devices

    hardware = devices.find_tpu_system()
    return max(1, hardware.tpu_cores // max(1, hardware.hosts))
