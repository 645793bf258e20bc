"""Prepares this process so that a program written for TPUEstimator runs on today's TensorFlow.

The preparation supplies tf.estimator, tf.contrib and other symbols that TensorFlow has removed.
"""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.devices import EMULATION_VARIABLE
from tpuserve.errors import InvalidSetting
from tpuserve.runtime import gc_control, tf_logging
from trainer.compat import removed_names
from trainer.compat.imports import estimator_finder, install_names, override_shims
from trainer.compat.imports.import_hooks import ImportHook, ProgramImportFunction
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import tf1_detection
from trainer.compat.source.tf1_packages import Tf1Packages
from trainer.compat.source.user_program import UserProgram

TF1_VARIABLE = "TPUSERVE_TF1"

_TPU_NAME_VARIABLE = "TPU_NAME"


@dataclass
class _Installation:
    """The decisions of `install` about the user's program, and the modules for the program."""

    uses_tf1: bool
    is_for_tpu: bool
    proxy: TensorFlow1Proxy | None = None
    package_proxy: TensorFlow1Proxy | None = None

    def prepare_tensorflow(self) -> None:
        """Patch the imported TensorFlow for the program."""
        importlib.import_module("trainer.execution.protobuf_compat").patch_graph_io()
        importlib.import_module("trainer.compat.log_lines").drop_repeated_lines()
        # Patch TensorFlow's functions that build TPU graphs before the module tf.contrib.tpu is
        # imported: that module imports the functions by name, and would keep the unpatched ones.
        importlib.import_module("trainer.compat.emulation").install_emulation()
        install_names.supply_moved_names()
        install_names.add_names_to_tensorflow(replaces_resolver=self.is_for_tpu)
        if self.uses_tf1:
            self.proxy = install_names.enable_tf1()

    def find_package_proxy(self) -> TensorFlow1Proxy:
        if self.proxy is not None:
            return self.proxy
        if self.package_proxy is None:
            self.package_proxy = install_names.make_tf1_proxy()
        return self.package_proxy


_installation: _Installation | None = None


def install(
    program: UserProgram,
    tf1: bool | None,
    tf1_option: str,
    tf1_packages: Sequence[str] = (),
    *,
    filters_log: bool = False,
) -> None:
    """Supply tf.estimator, tf.contrib and the other symbols that a program for TPUEstimator uses.

    Does not import TensorFlow; the symbols are added when the program imports TensorFlow. If the
    program is written for TensorFlow 1, its modules get the symbols and the behaviour of TensorFlow
    1. An installed package that is written for TensorFlow 1 gets the symbols of TensorFlow 1,
    unless `tf1` is False. In both cases a line on standard error says so. A second call in a
    process has no effect.

    Args:
      tf1: whether the program gets the names and the behaviour of TensorFlow 1. None decides by the
        program's source: TensorFlow 1 if it uses a name that TensorFlow 2 lacks.
      tf1_option: text for the line on standard error.
      tf1_packages: names of installed packages that get TensorFlow 1's symbols in any case.
      filters_log: whether to drop what TensorFlow's C++ code logs about missing GPUs and CPU
        features when it is imported.

    Raises:
      InvalidSetting: the program is to get TensorFlow 1, but has imported TensorFlow before.
    """
    global _installation
    if _installation is not None:
        return
    uses_tf1 = _decide_tf1(program, tf1, tf1_option)
    if os.environ.get(EMULATION_VARIABLE, "").strip() not in ("", "0"):
        # If a TPU is emulated, set the environment variable TPU_NAME unless it is set. Programs
        # read this variable, because it is always set on Cloud TPU machines.
        os.environ.setdefault(_TPU_NAME_VARIABLE, "local")
    is_tensorflow_imported = "tensorflow" in sys.modules
    if uses_tf1 and is_tensorflow_imported:
        _check_program_has_no_tensorflow(program)
    _installation = installation = _Installation(
        uses_tf1, uses_tf1 or tf1_detection.uses_tpu_estimator(program)
    )

    install_names.register_estimator_modules()
    estimator_finder.install()
    removed_names.supply_names()
    context = functools.partial(_importing_tensorflow, filters_log)
    sys.meta_path.insert(0, ImportHook(installation.prepare_tensorflow, context))
    if is_tensorflow_imported:
        installation.prepare_tensorflow()
    batch_normalization = sys.modules.get(override_shims.BATCH_NORMALIZATION_MODULE)
    if batch_normalization is not None:
        override_shims.install_override_shims(batch_normalization)
    packages = Tf1Packages(tf1_packages, is_searched=tf1 is not False)
    ProgramImportFunction(
        program, lambda: installation.proxy, packages, installation.find_package_proxy
    )


@contextlib.contextmanager
def _importing_tensorflow(filters_log: bool) -> Iterator[None]:
    log = tf_logging.filtered_log() if filters_log else contextlib.nullcontext()
    with log, gc_control.gc_disabled():
        yield


def read_tf1_variable() -> dict[str, Any]:
    """Read the environment variable TPUSERVE_TF1, which turns TensorFlow 1's behaviour on or off.

    With the value 1 the program gets the names and the behaviour of TensorFlow 1, and with 0 those
    of TensorFlow 2.
    """
    value = os.environ.get(TF1_VARIABLE, "").strip()
    if value not in ("", "0", "1"):
        raise InvalidSetting(
            f"{TF1_VARIABLE} is {value!r}. Set it to 1 to run the program with TensorFlow 1's "
            f"names and behaviour, to 0 to run it without them, or unset it to decide by the "
            f"program's source."
        )
    if not value:
        return {"tf1": None, "tf1_option": f"{TF1_VARIABLE}=0 turns that off"}
    return {"tf1": value == "1", "tf1_option": f"{TF1_VARIABLE}={value}"}


def _decide_tf1(program: UserProgram, tf1: bool | None, tf1_option: str) -> bool:
    """Return whether the program gets TensorFlow 1's names and behaviour."""
    evidence = tf1_detection.find_tf1_evidence(program) if tf1 is None else None
    uses_tf1 = evidence is not None if tf1 is None else tf1
    if uses_tf1:
        reason = (
            f"{evidence}, which only TensorFlow 1 has ({tf1_option})"
            if evidence
            else f"{tf1_option} is set"
        )
        print(
            f"tpuserve: {program.name} gets TensorFlow 1's names and behaviour: {reason}",
            file=sys.stderr,
            flush=True,
        )
    return uses_tf1


def _check_program_has_no_tensorflow(program: UserProgram) -> None:
    """Check that no module of the program has imported TensorFlow yet."""
    tensorflow = sys.modules["tensorflow"]
    for module in list(sys.modules.values()):
        variables = getattr(module, "__dict__", {})
        if program.owns_module(variables) and any(
            value is tensorflow for value in variables.values()
        ):
            raise InvalidSetting(
                f"{variables.get('__file__', program.name)} has imported tensorflow before "
                f"trainer.compat. Make `import trainer.compat` the first line of the program."
            )
