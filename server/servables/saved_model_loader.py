"""What loads a version as the settings say: the right metagraph, on this machine's hardware."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from server.config.settings import LOAD_THREADS, Settings
from server.process.throttled_executor import Result, ThrottledExecutor
from server.servables import symlinks
from server.servables.servable import Model

TFLITE_FILE = "model.tflite"
_OVERRIDES_FILE = Path("assets.extra", "saved_model_config.pb")

logger = logging.getLogger(__name__)


class SavedModels:
    """Loads versions; the first one brings TensorFlow, and the TPU system where there is one.

    Attributes:
      aside: runs what can wait for requests.
    """

    def __init__(self, settings: Settings, session_config: bytes = b"") -> None:
        """Takes what to load, and how.

        Args:
          session_config: a serialised ConfigProto, to which that of the settings is added.
        """
        self._settings = settings
        self.executor = ThrottledExecutor(settings.num_load_threads or LOAD_THREADS)
        self._session_config = session_config
        self._is_prepared = False
        self._is_serving = False
        self._has_loaded = False
        self._preparing = threading.Lock()

    def serving(self) -> None:
        """From here on requests are answered, and loads keep out of their way."""
        self._is_serving = True
        self.executor.enable()

    def __call__(self, directory: Path) -> Model:
        """The model of a version.

        Raises:
          TpuserveError: it cannot be loaded, or must not be.
        """
        self._prepare()
        settings = self._settings
        if not settings.allow_links:
            symlinks.check(directory)
        if settings.prefer_tflite_model and (directory / TFLITE_FILE).is_file():
            from server.servables import tflite_loader

            return tflite_loader.load(directory / TFLITE_FILE, _interpreters(settings))
        if (directory / _OVERRIDES_FILE).is_file():
            logger.warning(
                "%s is not read, and what it says of the session has no effect. Give "
                "--tensorflow_session_config_file for all models.",
                directory / _OVERRIDES_FILE,
            )
        from tpuserve import devices
        from tpuserve.runtime import load_plan, loader, subprocess_prepare

        # The runtime makes its threads with the first model; they are as the one that asks.
        aside = self.executor if self._has_loaded else _here
        model = loader.load(
            directory,
            settings.saved_model_tags,
            devices.find_tpu_system(),
            session_config=self._session_config,
            fallback_to_cpu=settings.fallback_to_cpu,
            forbid_unsafe_ops=settings.forbid_unsafe_ops,
            initialise_tpu=not settings.skip_initialize_tpu,
            make_plan=subprocess_prepare.make_load_plan_in_subprocess
            if self._is_serving
            else load_plan.make_load_plan,
            executor=aside,
        )
        self._has_loaded = True
        return model

    def _prepare(self) -> None:
        # One thread does it for all, and the others wait: nothing loads before the TPU is up.
        with self._preparing:
            if self._is_prepared:
                return
            # Imported here because it brings TensorFlow, which a server that cannot start does
            # without.
            from tpuserve import devices
            from tpuserve.runtime import gc_control, tf_logging

            tf_logging.import_tensorflow()
            with gc_control.gc_disabled():
                from server.config import session_options

            self._session_config = session_options.build_session_config(
                self._settings, self._session_config
            )
            hardware = devices.find_tpu_system()
            is_real = hardware.has_tpu and not hardware.is_emulated
            if is_real and not self._settings.skip_initialize_tpu:
                devices.initialise_tpu_system()
            self._is_prepared = True


def _interpreters(settings: Settings) -> int:
    pools = settings.num_tflite_pools or os.cpu_count() or 1
    return pools * max(1, settings.num_tflite_interpreters_per_pool)


def _here(work: Callable[[], Result]) -> Result:
    return work()
