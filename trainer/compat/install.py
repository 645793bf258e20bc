"""What is done, once a process, so that a program of the TPUEstimator era finds its names."""

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

from tpuserve.devices import EMULATION_VARIABLE
from tpuserve.errors import InvalidSetting
from trainer.compat.contrib_names import module_aliases
from trainer.compat.imports import estimator_aliases, install_names, override_shims
from trainer.compat.imports.import_hooks import ImportHook, ProgramImportFunction
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import tf1_detection
from trainer.compat.source.program import Program

TF1_VARIABLE = "TPUSERVE_TF1"

_TPU_NAME = "TPU_NAME"

_TPU_FORMS = "tpu.python.tpu."


@dataclass
class _Installed:
    program: Program
    tf1: bool
    proxy: TensorFlow1Proxy | None = None


_installed: _Installed | None = None


def install(program: Program, tf1: bool | None, way: str) -> None:
    """Has the program, and it alone, find the names that it was written with.

    TensorFlow is not imported; once the program does, the names are there. That it gets
    TensorFlow 1 is said in a line on standard error. Later calls change nothing.

    Args:
      program: whose modules are meant.
      tf1: whether it gets the names and the behaviour of TensorFlow 1; None looks in its source
        for what TensorFlow 2 has not.
      way: how a user says what tf1 is, in words; part of that line.

    Raises:
      InvalidSetting: TensorFlow was imported before, and the program has it already in a form that
        it is not to have.
    """
    global _installed
    if _installed is not None:
        return
    evidence = tf1_detection.find_tf1_evidence(program) if tf1 is None else None
    why = f"{evidence}, which only TensorFlow 1 has ({way})" if evidence else f"as {way} says"
    is_first = evidence is not None if tf1 is None else tf1
    if is_first:
        print(
            f"tpuserve: {program.name} gets TensorFlow 1's names and behaviour: {why}",
            file=sys.stderr,
            flush=True,
        )
    if os.environ.get(EMULATION_VARIABLE, "").strip() not in ("", "0"):
        # Programs take it from the environment of a Cloud TPU. All names are this machine's TPU.
        os.environ.setdefault(_TPU_NAME, "local")
    was_imported = "tensorflow" in sys.modules
    if is_first and was_imported:
        _refuse_imported(program)
    _installed = made = _Installed(program, is_first)

    def on_tensorflow() -> None:
        importlib.import_module("trainer.execution.protobuf_compat").patch_graph_io()
        # Before tf.contrib.tpu takes what is replaced.
        importlib.import_module("trainer.compat.emulation").install_emulation()
        install_names.add_names_to_tensorflow()
        if made.tf1:
            made.proxy = install_names.enable_tf1()

    install_names.register_estimator_modules()
    estimator_aliases.register_estimator_aliases(
        {
            path[len(_TPU_FORMS) :]: home
            for path, home in module_aliases.MODULE_ALIASES.items()
            if path.startswith(_TPU_FORMS)
        }
    )
    sys.meta_path.insert(0, ImportHook(on_tensorflow))
    if was_imported:
        on_tensorflow()
    if override_shims.BATCH_NORMALIZATION_MODULE in sys.modules:
        override_shims.install_override_shims(
            sys.modules[override_shims.BATCH_NORMALIZATION_MODULE]
        )
    ProgramImportFunction(program, lambda: made.proxy)


def read_tf1_variable() -> dict[str, Any]:
    """What TPUSERVE_TF1 says, 1, 0 or nothing, as arguments of `install`.

    Raises:
      InvalidSetting: it says something else.
    """
    asked = os.environ.get(TF1_VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise InvalidSetting(
            f"{TF1_VARIABLE} is {asked!r}. Set it to 1 to give the program TensorFlow 1's names "
            f"and behaviour, to 0 not to, or unset it to have its source decide."
        )
    if not asked:
        return {"tf1": None, "way": f"{TF1_VARIABLE}=0 turns that off"}
    return {"tf1": asked == "1", "way": f"{TF1_VARIABLE}={asked}"}


def _refuse_imported(program: Program) -> None:
    real = sys.modules["tensorflow"]
    for module in list(sys.modules.values()):
        bound = getattr(module, "__dict__", {})
        if program.owns_module(bound) and any(each is real for each in bound.values()):
            raise InvalidSetting(
                f"{bound.get('__file__', program.name)} has imported tensorflow before "
                f"trainer.compat. Make `import trainer.compat` the first line of the program."
            )
