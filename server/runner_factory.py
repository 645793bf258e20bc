"""Creates the functions that batch requests, warm up versions and make sample requests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from server.config.settings import AUTO, Settings
from server.dataplane.data_plane import MakeSample
from server.dataplane.results import SampleRequest
from server.metrics import Metrics
from server.models.servable_loader import MakeRunner, WarmUpModel
from server.servables.direct_runner import DirectRunner
from server.servables.servable import Array, Model

Reasons: TypeAlias = Mapping[str, str]
"""Signature name → why it is not batched."""

if TYPE_CHECKING:
    from server.config.batching_parameters import BatchingParameters
    from server.config.platform_config import PlatformConfig


def _close_nothing() -> None:
    """Do nothing.

    Without batching, this function takes the place of the function that closes the batch queues.
    """


def make_runner_factory(
    settings: Settings,
    platform: "PlatformConfig | None",
    metrics: Metrics,
    executor: Callable[[Callable[[], Reasons]], Reasons],
) -> tuple[MakeRunner, Callable[[], None]]:
    """Return a function that creates the runner of a version, and another that closes all runners.

    A runner runs the requests of a version; if batching is enabled, it combines them into batches.

    Args:
      platform: the settings of the platform config file; None without such a file.
      executor: calls the function that it gets, which runs a model to check it: in a thread of low
        priority while the server answers requests of clients.
    """
    if not settings.enable_batching:
        return (lambda model, directory, name: DirectRunner(model)), _close_nothing
    from server.batching.factory import BatchingRunnerFactory
    from server.batching.gain_check import find_no_gain
    from server.batching.row_check import RowCheck

    is_optional = settings.enable_batching == AUTO
    check = (
        RowCheck(_sample_rows, find_no_gain=find_no_gain) if is_optional else RowCheck(_sample_rows)
    )
    factory = BatchingRunnerFactory(
        _read_parameters(settings, platform),
        metrics=metrics,
        per_model=settings.enable_per_model_batching_parameters,
        is_optional=is_optional,
        find_unbatched=lambda *version: executor(lambda: check(*version)),
    )
    return factory.wrap, factory.close


def make_batch_size_finder(
    settings: Settings, platform: "PlatformConfig | None"
) -> Callable[[Path], Sequence[int]]:
    """Return a function that finds the batch sizes to compile when a version is loaded.

    The returned function takes the directory of the version. It returns no sizes if batching is
    disabled.

    Args:
      platform: the settings of the platform config file; None without such a file.
    """
    if not settings.enable_batching:
        return lambda directory: ()
    from server.config import batching_parameters

    parameters = _read_parameters(settings, platform)

    def find(directory: Path) -> Sequence[int]:
        if not settings.enable_per_model_batching_parameters:
            return parameters.compiled_sizes
        path = directory / batching_parameters.PER_MODEL_FILE
        if not path.exists():
            return ()
        return batching_parameters.read_batching_parameters(path).compiled_sizes

    return find


def _read_parameters(settings: Settings, platform: "PlatformConfig | None") -> "BatchingParameters":
    from server.config import batching_parameters

    if platform is not None and platform.batching is not None:
        return platform.batching
    file = settings.batching_parameters_file
    if file:
        return batching_parameters.read_batching_parameters(Path(file))
    if settings.enable_batching == AUTO:
        return batching_parameters.OPTIONAL
    return batching_parameters.BatchingParameters(batching_policy=batching_parameters.CONTINUOUS)


def _sample_rows(model: Model, directory: Path, signature_name: str) -> Mapping[str, Array]:
    # Import the module here and not at the top of the file, because the import loads TensorFlow,
    # which takes seconds.
    from server.warmup.sample_request import sample_rows

    return sample_rows(model, directory, signature_name)


def make_sample(settings: Settings) -> MakeSample:
    """Return a function that makes a valid request for a signature of a loaded model.

    The function is `server.warmup.sample_request.make_sample_request`. It is imported at its first
    call, because the import loads TensorFlow.
    """

    def make_sample_request(model: Model, directory: Path, signature_name: str) -> SampleRequest:
        from server.warmup import sample_request

        return sample_request.make_sample_request(
            model, directory, signature_name, settings.show_warm_up_requests
        )

    return make_sample_request


def make_warm_up(
    settings: Settings,
    platform: "PlatformConfig | None",
    metrics: Metrics,
    executor: Callable[[Callable[[], None]], None],
) -> WarmUpModel | None:
    """Return the function that warms up a version before it is available; None if warm-up is off.

    Args:
      platform: the settings of the platform config file; None without such a file.
      executor: calls the function that it gets, which runs the warm-up requests of a version: in
        a thread of low priority while the server answers requests of clients.
    """
    if not settings.enable_model_warmup:
        return None
    from server.warmup import FileWarmUp

    threads = platform.warm_up_threads if platform is not None else 1

    def run(model: Model, directory: Path) -> None:
        warm_up = FileWarmUp(
            settings.num_request_iterations_for_warmup or _num_cores_to_warm_up(model),
            metrics,
            threads=threads,
            check_method_names=settings.enable_signature_method_name_check,
            timeout_seconds=settings.load_timeout_seconds,
        )
        executor(lambda: warm_up(model, directory))

    return run


def _num_cores_to_warm_up(model: Model) -> int:
    """Return how often a warm-up request must run so that each TPU core of a host runs it once."""
    if getattr(model.choice, "device", "CPU") != "TPU":
        return 1
    from tpuserve import devices

    tpu_system = devices.find_tpu_system()
    return max(1, tpu_system.tpu_cores // max(1, tpu_system.hosts))
