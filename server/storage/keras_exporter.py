"""Exports files of Keras as SavedModels, each in a process of its own."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tpuserve.errors import Cancelled, Code, CodedError, ModelFileRefused

# What is added to the nice value of an export beside requests: it gets the time that they leave.
_NICE = 15
_POLL_SECONDS = 0.1
# Variables that the process has instead of the user's: TensorFlow writes the SavedModel, and an
# export computes nothing, so it must not take a GPU or a TPU from the server.
_ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
}

logger = logging.getLogger(__name__)


class KerasExporter:
    """Runs `tpuserve export` for the .keras files that are served.

    Args:
      timeout_seconds: the time limit of one export, in seconds; 0 for no limit.
      check_links: raises ModelFileRefused for a version's directory with a symbolic link that
        leads out of the base path.
    """

    def __init__(
        self, timeout_seconds: float = 0, check_links: Callable[[Path], None] = lambda path: None
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self.check_links = check_links
        self._is_serving = False

    def mark_serving(self) -> None:
        """Leave the processor time to requests from now on."""
        self._is_serving = True

    def export(
        self, file: Path, target: Path, is_cancelled: Callable[[], bool], origin: str = ""
    ) -> None:
        """Write the SavedModel of a .keras file, with both metagraphs, to the directory `target`.

        Args:
          target: replaced if it exists, and may hold the file.
          origin: the address of the file for logs and errors; empty for its path.

        Raises:
          ModelFileRefused: the file cannot be exported as long as it is not changed.
        """
        directory = target.parent / "export"
        # A server that was killed can have left the directory.
        shutil.rmtree(directory, ignore_errors=True)
        logger.info(
            "exporting %s, a file of Keras, for the CPU and the TPU to %s: the model cache has no "
            "export of this content",
            origin or file,
            target.parent.with_suffix("") / target.name,
        )
        try:
            self._run(file, directory, is_cancelled)
        except CodedError as error:
            raise type(error)(
                str(error).replace(str(file), origin or str(file)), error.code
            ) from None
        shutil.rmtree(target, ignore_errors=True)
        (version,) = directory.iterdir()
        version.rename(target)
        directory.rmdir()

    def _run(self, file: Path, directory: Path, is_cancelled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + (self._timeout_seconds or float("inf"))
        # Only the cache need be writable.
        temporary = directory.parent
        environment = {**os.environ, **_ENVIRONMENT, "TMPDIR": str(temporary)}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        with tempfile.TemporaryFile(dir=temporary) as output:
            # The process ends when its standard input is closed, so also when this one is killed.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tpuserve.local_server.child"]
                + ["tpuserve", "export", str(file), str(directory)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,
            )
            try:
                if self._is_serving:
                    os.setpriority(os.PRIO_PROCESS, process.pid, os.nice(0) + _NICE)
                while process.poll() is None:
                    if is_cancelled():
                        raise Cancelled(f"the export of {file} was cancelled.")
                    if time.monotonic() > deadline:
                        raise ModelFileRefused(
                            f"{file} was not exported within {self._timeout_seconds:g} s. Export "
                            f"it with `tpuserve export`, or raise --load_timeout_seconds.",
                            Code.DEADLINE_EXCEEDED,
                        )
                    time.sleep(_POLL_SECONDS)
            finally:
                process.kill()
                process.wait()
                process.stdin.close()  # type: ignore[union-attr]
            if process.returncode:
                output.seek(0)
                raise _to_error(file, process.returncode, output.read().decode(errors="replace"))


def _to_error(file: Path, status: int, output: str) -> CodedError:
    lines = output.strip().splitlines() or [f"the process has ended with status {status}"]
    if lines[-1].startswith("Error: "):
        return ModelFileRefused(lines[-1].removeprefix("Error: "), Code.FAILED_PRECONDITION)
    if status < 0:
        # The kernel kills a process where memory is short, which may pass.
        return CodedError(
            f"the process that exports {file} was killed by signal {-status}, as where memory is "
            f"short. Give the server more memory.",
            Code.INTERNAL,
        )
    return ModelFileRefused(f"{file} cannot be exported: {lines[-1]}", Code.INTERNAL)
