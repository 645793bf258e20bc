"""Loads SavedModel and TensorFlow Lite versions, as the server's settings say."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from server.config.model_config import XLA_ENGINE
from server.config.settings import LOAD_THREADS, SIGNATURES_REQUIRED, Settings
from server.process.thread_pool import Result, ThrottledExecutor
from server.servables.servable import Model
from tpuserve.errors import Code, CodedError
from tpuserve.files.disk_cache import find_executables_directory
from tpuserve.saved_model import signing

logger = logging.getLogger(__name__)


def check_no_escaping_symlinks(directory: Path, base_path: Path | None = None) -> None:
    """Check that no symbolic link in a version leads to a path outside of the model's base path."""
    base = str(directory.parent if base_path is None else base_path)
    real_base = os.path.realpath(base)
    _check_path(str(directory), base, real_base)
    for parent, directories, names in os.walk(directory):
        for name in (*directories, *names):
            _check_path(os.path.join(parent, name), base, real_base)


def _check_path(path: str, base: str, real_base: str) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath([real, real_base]) != real_base:
        # Tell the target only in the log: clients read the error in the status of the model.
        logger.warning("%s leads to %s", path, real)
        raise CodedError(
            f"{path} leads out of the base path {base}. Put the files inside the base path, or "
            f"serve with --allow_links if you trust the link.",
            Code.PERMISSION_DENIED,
        )


TFLITE_FILE = "model.tflite"
# The largest size, in bytes, of a saved_model.pb that is checked before TensorFlow is imported. A
# file of this size is parsed in about 20 ms.
_CHECKED_BYTES = 16 << 20
_OVERRIDES_FILE = Path("assets.extra", "saved_model_config.pb")


class SavedModelLoader:
    """Loads model versions.

    The first load imports TensorFlow and, on a TPU, initialises the TPU system.

    Attributes:
      executor: runs the expensive parts of loads and warm-ups in threads of low priority, so that
        they do not delay requests.

    Args:
      session_config: a serialised ConfigProto with the options of all sessions. Session options
        in `settings` override these options.
      find_batch_sizes: takes a version's directory, and returns the batch sizes (numbers of
        examples) for which to compile executables when the version is loaded; empty for none.
    """

    def __init__(
        self,
        settings: Settings,
        session_config: bytes = b"",
        find_batch_sizes: Callable[[Path], Sequence[int]] = lambda directory: (),
    ) -> None:
        self._find_batch_sizes = find_batch_sizes
        self._settings = settings
        self.executor = ThrottledExecutor(settings.num_load_threads or LOAD_THREADS)
        self._session_config = session_config
        self._is_runtime_ready = False
        self._is_serving = False
        self._has_loaded = False
        self._runtime_lock = threading.Lock()

    def mark_serving(self) -> None:
        """Record that the server answers requests from now on: further loads are throttled."""
        self._is_serving = True
        self.executor.enable()

    def __call__(self, directory: Path, engine: str = "", base_path: Path | None = None) -> Model:
        """Load the model in a version's directory.

        Args:
          engine: the runtime of a {serve} metagraph, "tensorflow" or "xla"; empty for the runtime
            in the server's settings.
          base_path: the model's base path. Symbolic links to files outside of it are refused,
            unless the settings allow them. None for the parent of the version's directory.

        Raises:
          CodedError: the settings require signed models, and the version has no valid
            cryptographic signature.
        """
        settings = self._settings
        if settings.model_signature_policy == SIGNATURES_REQUIRED:
            signing.verify(directory, Path(settings.model_signing_key))
        self._prepare_runtime()
        if not settings.allow_links:
            check_no_escaping_symlinks(directory, base_path)
        if settings.prefer_tflite_model and (directory / TFLITE_FILE).is_file():
            from server.servables import tflite_loader

            return tflite_loader.load_tflite_model(
                directory / TFLITE_FILE,
                _num_interpreters(settings),
                forbid_unsafe_ops=settings.forbid_unsafe_ops,
                max_tensor_bytes=settings.max_constant_bytes,
            )
        if (directory / _OVERRIDES_FILE).is_file():
            logger.warning(
                "%s is ignored: this server does not support session options per model. Use "
                "--tensorflow_session_config_file for all models.",
                directory / _OVERRIDES_FILE,
            )
        from tpuserve import devices
        from tpuserve.runtime import load_plan, loader, subprocess_prepare

        # Load the first model in this thread, and not in the executor's threads of low priority:
        # TensorFlow creates its thread pools during the first load, and their threads inherit the
        # priority of the loading thread.
        executor = self.executor if self._has_loaded else _run_inline
        model = loader.load(
            directory,
            settings.saved_model_tags,
            devices.find_tpu_system(),
            session_config=self._session_config,
            fallback_to_cpu=settings.fallback_to_cpu,
            forbid_unsafe_ops=settings.forbid_unsafe_ops,
            max_constant_bytes=settings.max_constant_bytes,
            initialise_tpu=not settings.skip_initialize_tpu,
            runtime=XLA_ENGINE if (engine or settings.engine) == XLA_ENGINE else None,
            batch_sizes=self._find_batch_sizes(directory),
            cache_directory=find_executables_directory(settings.xla_cache_dir),
            make_plan=subprocess_prepare.make_load_plan_in_subprocess
            if self._is_serving
            else load_plan.make_load_plan,
            timeout_seconds=settings.load_timeout_seconds,
            executor=executor,
        )
        self._has_loaded = True
        return model

    def check_version(self, directory: Path, base_path: Path | None = None) -> None:
        """Raise the errors of a later load that can be found without importing TensorFlow.

        These are: symbolic links to files outside of the base path, a damaged saved_model.pb, and
        no metagraph with the required tags.

        Args:
          base_path: the model's base path; None for the parent of the version's directory.
        """
        settings = self._settings
        if not settings.allow_links:
            check_no_escaping_symlinks(directory, base_path)
        if settings.prefer_tflite_model and (directory / TFLITE_FILE).is_file():
            return
        from tpuserve import devices, select
        from tpuserve.saved_model import metagraph, proto_file

        if proto_file.find_saved_model_file(directory).stat().st_size > _CHECKED_BYTES:
            return
        metagraphs = metagraph.read_metagraphs(directory)
        select.check_tags(
            [description.tags for description in metagraphs],
            settings.saved_model_tags,
            devices.find_emulated_tpu_system(),
            where=str(directory),
            untagged_tpu_graphs=metagraph.untagged_tpu_graphs(metagraphs),
            fallback_to_cpu=settings.fallback_to_cpu,
        )

    def _prepare_runtime(self) -> None:
        # Hold the lock until the runtime is ready, so that other loads wait for the initialisation
        # of the TPU system.
        with self._runtime_lock:
            if self._is_runtime_ready:
                return
            # Import TensorFlow here, in the first load, and not earlier.
            from tpuserve import devices
            from tpuserve.runtime import gc_control, serving_import

            serving_import.import_tensorflow_for_serving()
            with gc_control.gc_disabled():
                from server.config import session_options

            self._session_config = session_options.build_session_config(
                self._settings, self._session_config
            )
            tpu_system = devices.find_tpu_system()
            if tpu_system.is_run_by_tensorflow and not self._settings.skip_initialize_tpu:
                devices.initialise_tpu_system()
            self._is_runtime_ready = True


def _num_interpreters(settings: Settings) -> int:
    pools = settings.num_tflite_pools or os.cpu_count() or 1
    return pools * max(1, settings.num_tflite_interpreters_per_pool)


def _run_inline(work: Callable[[], Result]) -> Result:
    return work()
