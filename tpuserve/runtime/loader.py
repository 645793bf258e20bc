"""Loads one metagraph of a SavedModel with the runtime that `tpuserve.select` selects."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tpuserve import devices
from tpuserve.devices import TpuSystem
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.registry import LoadOptions, get_runtime
from tpuserve.saved_model import op_imports
from tpuserve.tags import TagSet

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def run_inline(function: Callable[[], Result]) -> Result:
    """Call a function in the calling thread, and return its result.

    This is the default executor of `load`.
    """
    return function()


def load(
    directory: str | bytes | os.PathLike[str],
    wanted_tags: TagSet | None = None,
    hardware: TpuSystem | None = None,
    *,
    session_config: bytes = b"",
    fallback_to_cpu: bool = False,
    forbid_unsafe_ops: bool = False,
    max_constant_bytes: int = 0,
    initialise_tpu: bool = True,
    runtime: str | None = None,
    timeout_seconds: float = 0,
    batch_sizes: Sequence[int] = (),
    cache_directory: Path | None = None,
    make_plan: Callable[[LoadRequest], LoadPlan] = make_load_plan,
    executor: Callable[[Callable[[], LoadedModel]], LoadedModel] = run_inline,
) -> LoadedModel:
    """Load the model of a SavedModel directory.

    On an emulated TPU, the TPU ops of a TPU metagraph are first replaced by ops that run on a CPU.
    Known packages that register ops of the model are imported, if they are installed.

    Args:
      directory: a directory with saved_model.pb and variables/. Bytes are accepted because
        `Estimator.export_saved_model` returns bytes.
      wanted_tags: the exact tag set of the metagraph; None lets `tpuserve.select` choose.
      hardware: the TPU system to run on; None calls `tpuserve.devices.find_tpu_system`.
      forbid_unsafe_ops: whether to refuse ops that may do more than compute, such as read files.
      max_constant_bytes: the memory, in bytes, that constants and tensors computed from them may
        need in addition to the size of the constants in the file; 0 for no limit.
      runtime: a name in `tpuserve.runtime.registry`; None for the default runtime.
      timeout_seconds: how long the restore of the variables and the initialisation may take, in
        seconds; 0 for no limit.
      cache_directory: the directory in which a runtime that compiles models keeps its executables
        for later processes; None to keep none.
      executor: is called with a function that does the long part of the load, mostly in C++. The
        executor has to call this function, for example in another thread, and return the result.

    Raises:
      UnsafeModel: an op of the model may do more than compute, and that is forbidden.
      UnsupportedModel: the model has ops of a package that is not installed, or not known.
      ModelTooLarge: the constants need more memory than `max_constant_bytes` allows, or an unknown
        amount of memory.
    """
    directory = Path(os.fsdecode(directory))
    hardware = devices.find_tpu_system() if hardware is None else hardware
    request = LoadRequest(
        directory,
        wanted_tags,
        hardware,
        fallback_to_cpu,
        forbid_unsafe_ops,
        runtime,
        max_constant_bytes,
    )
    plan = op_imports.with_packages(
        lambda imported_ops: make_plan(replace(request, imported_ops=imported_ops)), directory
    )
    if plan.choice.fallback:
        logger.warning("%s: %s", directory, plan.choice.fallback)
    options = LoadOptions(
        session_config, initialise_tpu, executor, timeout_seconds, batch_sizes, cache_directory
    )
    return get_runtime(plan.choice.runtime).load(directory, plan, options)
