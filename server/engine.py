"""The engine of a server, which loads and runs its models and has no network interface."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from server import runner_factory
from server.config import model_file, session_options, textproto
from server.config.model_config import XLA_ENGINE, ModelConfig, ModelServerConfig, QueueLimits
from server.config.settings import AUTO, SIGNATURES_REQUIRED, Settings
from server.dataplane import DataPlane
from server.metrics import Metrics
from server.models.config_manager import ModelConfigManager, models_not_available
from server.models.file_system_source import FileSystemSource, PeriodicFunction
from server.models.manager import Manager, statuses
from server.models.model_size import estimate_bytes
from server.models.residency import Residency
from server.models.servable_loader import MakeRunner, Retries, WarmUpModel, is_retriable
from server.process import malloc
from server.process.heap_trimmer import UnloadTrimmer
from server.request_log import RequestLog
from server.request_log.checks import check_logging_config
from server.scheduling.run_limits import LimitTable
from server.servables.direct_runner import DirectRunner
from server.servables.saved_model_loader import SavedModelLoader, check_no_escaping_symlinks
from server.servables.servable import InferenceRunner, Load, Model, Servable, VersionStatus
from server.storage import file_systems
from server.storage.keras_exporter import KerasExporter
from server.storage.model_cache import ModelCache
from server.storage.remote_models import RemoteModels
from tpuserve.devices import jax_client
from tpuserve.errors import CodedError, ModelFileRefused, TpuserveError
from tpuserve.files.disk_cache import find_cache_directory
from tpuserve.saved_model import op_imports, signing

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig

# The lowest limit of the number of requests of one model that wait for their batches at the same
# time. The limit is higher if a frontend has more threads than this.
_MIN_BATCH_WAITERS = 128

logger = logging.getLogger("server.app")


class Engine:
    """Loads, updates and runs the models of a server.

    The engine consists of the loaded models, the threads that poll the base paths and the model
    config file for changes, and the data plane.

    Args:
      settings: the settings of the server.
      load: a function that loads the model in the directory of a version; None to load
        SavedModels.
      platform: the batching and warm-up settings of the platform config file; None without
        such a file.
    """

    def __init__(
        self,
        settings: Settings,
        load: Load | None,
        metrics: Metrics,
        platform: "PlatformConfig | None" = None,
    ) -> None:
        if load is not None and settings.enable_batching == AUTO:
            # The check of a signature needs the files of a SavedModel.
            settings = replace(settings, enable_batching=False)
        self._settings = settings
        self._metrics = metrics
        self._request_log = RequestLog(
            metrics,
            spool_directory=(
                Path(settings.request_log_spool_dir).absolute()
                if settings.request_log_spool_dir
                else None
            ),
        )
        self._limits = _create_limit_table(settings)
        self._loader = SavedModelLoader(
            settings,
            platform.session_config if platform else b"",
            runner_factory.make_batch_size_finder(settings, platform),
        )
        make_runner, self._close_batching = runner_factory.make_runner_factory(
            settings, platform, metrics, self._loader.executor
        )
        self._models: Mapping[str, ModelConfig] = {}
        self._check_version = self._loader.check_version if load is None else _check_nothing

        def make_runner_and_set_limits(model: Model, directory: Path, name: str) -> InferenceRunner:
            runner = make_runner(model, directory, name)
            self._limits.set_batched(name.rpartition("/")[0], not isinstance(runner, DirectRunner))
            return runner

        warm_up = runner_factory.make_warm_up(settings, platform, metrics, self._loader.executor)
        self._residency = self._create_residency(settings, metrics)
        self._exporter = _create_exporter(settings)
        self._cache = ModelCache(_cache_directory(settings), settings.model_cache_max_bytes)
        remote_models = RemoteModels(self._cache, self._exporter)
        self._is_fetched = remote_models.is_remote
        self._trimmer = UnloadTrimmer()
        self._manager = _create_manager(
            settings,
            load or self._loader,
            make_runner_and_set_limits,
            warm_up,
            self._find_load if load is None else None,
            remote_models,
            self._residency,
            self._trimmer,
        )
        self._source = FileSystemSource(self._manager, remote_models)
        self._config_manager = ModelConfigManager(
            self._manager,
            self._source,
            allow_labels_for_unavailable=settings.allow_version_labels_for_unavailable_models,
            versions_required=settings.fail_if_no_model_versions_found,
            base_paths_required=settings.base_paths_required,
            each_path_required=bool(settings.models),
            on_config=self._configure,
        )
        self.dataplane = DataPlane(
            self._manager,
            metrics=metrics,
            request_log=self._request_log,
            check_method_names=settings.enable_signature_method_name_check,
            reload=partial(self._config_manager.reload, keep_logging=True),
            configured=lambda: self._config_manager.config.names(),
            run_limits=self._limits.find,
            load_model=self._config_manager.load_model,
            unload_model=self._config_manager.unload_model,
            config_manager=self._config_manager,
            make_sample=runner_factory.make_sample(settings) if load is None else None,
            residency=self._residency,
        )
        self._config_text = ""
        self._last_config_error = ""
        self._pollers = self._create_pollers()

    @property
    def model_names(self) -> list[str]:
        """The names of the configured models."""
        return list(self._config_manager.config.names())

    @property
    def startup_activity(self) -> str:
        """What `load_models` does at the moment, as a text such as "loading resnet"."""
        return self._config_manager.startup_activity()

    def check_models(self) -> None:
        """Check the configured models as far as possible before the slow import of TensorFlow.

        Raises:
          InvalidSetting: the public key that verifies the signatures of models cannot be read, or a
            package or a library of --import_ops is missing.
          ExtraNotInstalled: jax, which a model needs, is missing or of an untested version; or the
            package that reads the remote base path of a model is missing.
          LabelNotAvailable: the model config file sets a version label, although no version is
            loaded yet, and the flags do not allow that.
        """
        settings = self._settings
        if settings.tensorflow_session_config_file:
            session_options.read_session_config(Path(settings.tensorflow_session_config_file))
        if settings.model_signature_policy == SIGNATURES_REQUIRED:
            signing.check_key(Path(settings.model_signing_key), is_private=False)
        op_imports.check_names(settings.import_ops)
        config = self._first_config
        if any((model.engine or settings.engine) == XLA_ENGINE for model in config.models):
            jax_client.check_installed()
        for model in config.models:
            if model.logging is not None:
                check_logging_config(model.name, model.logging)
            if model.is_remote:
                file_systems.check_installed(model.base_path)
        self._config_manager.check(config)
        self._check_versions(config)

    def mark_serving(self) -> None:
        """Declare that requests may be in flight from now on.

        Each load of a model from then on leaves processor time to the requests.
        """
        self._loader.mark_serving()
        if self._exporter is not None:
            self._exporter.mark_serving()

    def watch_states(self, on_change: Callable[[], None]) -> None:
        """Call a function once at first, and again after each change of a model version's state.

        All calls are made in a new thread, which runs until the process ends.
        """

        def read_states() -> Mapping[str, list[VersionStatus]]:
            return statuses(self._manager, self._manager.names())

        def watch() -> None:
            while True:
                known = read_states()
                on_change()
                self._manager.wait(lambda: read_states() != known)  # noqa: B023

        threading.Thread(target=watch, name="states", daemon=True).start()

    def load_models(self) -> None:
        """Start the polling for new versions, load the models, and block until they can be served.

        Raises:
          TpuserveError: the models cannot be served: for example, none of them can be loaded.
        """
        for poller in self._pollers:
            poller.start()
        is_polled = any(poller.is_active for poller in self._pollers)
        self._config_manager.start(self._first_config, is_polled=is_polled)

    def stop_polling(self) -> None:
        """Stop looking for new versions and for changes of the model config file."""
        for poller in self._pollers:
            poller.stop()

    def close(self, log_seconds: float, unload_seconds: float) -> bool:
        """Close the batching queues, the request log and the models."""
        self._close_batching()
        self._request_log.close(log_seconds)
        is_closed = self._manager.close(unload_seconds)
        self._trimmer.close()
        return is_closed

    def reload_config_file(self) -> None:
        """Apply the model config file if it has changed; log an error if it is invalid."""
        path = Path(self._settings.model_config_file)
        try:
            text = textproto.read_text(path)
            if text == self._config_text or model_file.is_empty(text):
                # Ignore an empty file: an editor may empty the file just before it writes the new
                # text, and an empty configuration would unload every model.
                self._last_config_error = ""
                return
            self._config_manager.reload(model_file.parse_model_config(text, path), wait=False)
        except TpuserveError as error:
            # Log the same error only once: each poll applies the invalid file again, because files
            # that it names may have appeared.
            if str(error) != self._last_config_error:
                self._metrics.reloaded(error.code.name)
                logger.error(
                    "%s was not applied; still using the previous version: %s", path, error
                )
            self._last_config_error = str(error)
        else:
            self._config_text, self._last_config_error = text, ""
            self._metrics.reloaded("OK")
            logger.info("applied the new %s", path)

    def _create_residency(self, settings: Settings, metrics: Metrics) -> Residency | None:
        """Return what decides which models are in memory; None if all models are."""
        if not settings.lazy_load and not settings.max_model_bytes:
            return None
        return Residency(
            settings.max_model_bytes,
            settings.lazy_load_timeout,
            settings.load_retry_interval_micros / 1e6,
            estimate=lambda servable: estimate_bytes(servable.directory),
            check=self._check_dormant,
            metrics=metrics,
        )

    def _check_dormant(self, servable: Servable) -> None:
        """Raise the errors of a later load that the files show, as soon as they are here."""
        directory = servable.directory
        if directory is not None and directory.is_dir():
            base_path = self._find_base_path(servable.name)
            self._check_version(directory, base_path if directory == base_path else None)

    def _check_versions(self, config: ModelServerConfig) -> None:
        """Raise an error if it is certain that no version of any model can be loaded.

        A cache that exports cannot be written to is an error too.
        """
        causes: list[tuple[str, TpuserveError]] = []
        for model in config.models:
            if model.is_remote:
                return  # Skip the check: the files of a remote model are not downloaded yet.
            try:
                versions = self._source.find_versions(model)
            except TpuserveError:
                return  # Skip the check: the server waits until the model has a version.
            for version, directory in versions.items():
                if self._is_fetched(directory):
                    self._cache.check_writable()
                    return  # Skip the check: the version is not exported yet.
                try:
                    self._check_version(directory, model.path if directory == model.path else None)
                except TpuserveError as error:
                    if is_retriable(error):
                        return
                    causes.append((f"name: {model.name} version: {version}", error))
                else:
                    return
        if causes:
            raise models_not_available(len(config.models), "servable", causes)

    def _create_pollers(self) -> list[PeriodicFunction]:
        settings = self._settings
        return [
            PeriodicFunction(
                "base paths", self._source.poll_once, settings.file_system_poll_wait_seconds
            ),
            PeriodicFunction(
                "model config file",
                self.reload_config_file,
                settings.model_config_file_poll_wait_seconds if settings.model_config_file else 0,
            ),
        ]

    @cached_property
    def _first_config(self) -> ModelServerConfig:
        settings = self._settings
        if settings.models:
            return ModelServerConfig(settings.models)
        if settings.model_base_path is None and not settings.model_config_file:
            # Start without a model. `Settings` allows this only if clients load the models.
            return ModelServerConfig()
        if not settings.model_config_file:
            path = str(settings.model_base_path)
            return ModelServerConfig((ModelConfig(settings.model_name, path),))
        self._config_text = textproto.read_text(Path(settings.model_config_file))
        return model_file.parse_model_config(self._config_text, Path(settings.model_config_file))

    def _find_load(self, name: str) -> Load:
        base_path = self._find_base_path(name)
        model = self._models.get(name)
        engine = "" if model is None else model.engine

        def load(directory: Path) -> Model:
            return self._loader(directory, engine, base_path if directory == base_path else None)

        return load

    def _find_base_path(self, name: str) -> Path | None:
        """Return the local base path of a model, which may itself be the directory of a version."""
        model = self._models.get(name)
        return model.path if model is not None and model.is_local else None

    def _configure(self, config: ModelServerConfig) -> None:
        for model in config.models:
            if model.is_remote:
                file_systems.check_installed(model.base_path)
        # Set nothing before this call: it raises an error for a configuration that is refused, and
        # a refused configuration has no effect.
        self._request_log.configure(
            {model.name: model.logging for model in config.models if model.logging is not None}
        )
        self._models = {model.name: model for model in config.models}
        if self._residency is not None:
            lazy = [model.name for model in config.models if not model.pinned]
            self._residency.configure(lazy if self._settings.lazy_load else ())
        self._limits.configure({model.name: model.limits for model in config.models})


def _check_nothing(directory: Path, base_path: Path | None = None) -> None:
    """Accept any directory of a version.

    This function replaces the check of SavedModels if the server has a custom `load` function,
    because only `load` knows which directories it can load.
    """


def _cache_directory(settings: Settings) -> Path:
    if settings.model_cache_dir:
        return Path(settings.model_cache_dir).absolute()
    return find_cache_directory() / "models"


def _create_exporter(settings: Settings) -> KerasExporter | None:
    if settings.model_signature_policy == SIGNATURES_REQUIRED:
        return None  # Nobody has signed the export that the server would make.

    def check_links(directory: Path) -> None:
        try:
            check_no_escaping_symlinks(directory)
        except CodedError as error:
            raise ModelFileRefused(str(error), error.code) from None

    seconds = settings.load_timeout_seconds
    return KerasExporter(seconds) if settings.allow_links else KerasExporter(seconds, check_links)


def _create_limit_table(settings: Settings) -> LimitTable:
    return LimitTable(
        QueueLimits(settings.max_concurrent_runs, settings.max_queue, settings.max_queue_ms),
        max(_MIN_BATCH_WAITERS, settings.grpc_max_threads, settings.rest_api_num_threads),
    )


def _create_manager(
    settings: Settings,
    load: Load,
    make_runner: MakeRunner,
    warm_up: WarmUpModel | None,
    find_load: Callable[[str], Load] | None,
    downloader: RemoteModels,
    residency: Residency | None,
    trimmer: UnloadTrimmer,
) -> Manager:
    return Manager(
        load,
        make_runner=make_runner,
        warm_up=warm_up,
        find_load=find_load,
        retries=Retries(settings.max_num_load_retries, settings.load_retry_interval_micros / 1e6),
        load_threads=settings.num_load_threads,
        unload_threads=settings.num_unload_threads,
        during_move=malloc.large_tensor_allocation,
        after_unload=trimmer.note_unload,
        downloader=downloader,
        residency=residency,
    )
