"""Lists the model runtimes, and defines the interface that a runtime implements.

To add a runtime, write a module with a class that implements `ModelRuntime`, and add one entry to
`RUNTIMES`. `tpuserve.select.select_metagraph` chooses the runtime of a metagraph.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tpuserve.errors import InvalidSetting
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection

# The name of a runtime → the class that implements it. A class is imported when it is first used,
# so that no time is spent on importing unused runtimes.
RUNTIMES: dict[str, str] = {
    "pjrt": "tpuserve.runtime.pjrt_runtime:PjrtRuntime",
    "session": "tpuserve.runtime.session.session_runtime:SessionRuntime",
    "xla": "tpuserve.runtime.xla_runtime:XlaRuntime",
}


@dataclass(frozen=True)
class LoadOptions:
    """Options of a load that do not depend on the SavedModel.

    Attributes:
      session_config: a serialised ConfigProto; empty for TensorFlow's defaults.
      executor: is called with a function that does the long part of the load. The executor calls
        this function, for example in another thread, and returns the result.
      timeout_seconds: how long the restore of the variables and the initialisation may take, in
        seconds; 0 for no limit.
      batch_sizes: the sizes, in examples, of the batches that will be run. A runtime that compiles
        models compiles the model for these sizes during the load. Empty if they are not known.
      cache_directory: the directory in which a runtime that compiles models keeps its executables
        for later processes; None to keep none.
    """

    session_config: bytes
    initialise_tpu: bool
    executor: Callable[[Callable[[], LoadedModel]], LoadedModel]
    timeout_seconds: float = 0
    batch_sizes: Sequence[int] = ()
    cache_directory: Path | None = None


class ModelRuntime(Protocol):
    """The interface of a runtime, which first plans the load of a model and then loads it.

    The plan is made without TensorFlow.
    """

    def make_plan(
        self,
        meta_graph: Any,
        directory: Path,
        choice: MetaGraphSelection,
        signatures: Mapping[str, Signature],
    ) -> Any:
        """Prepare a metagraph for `load`.

        A server calls this method in a subprocess in which only TensorFlow's protocol buffer
        messages can be imported.
        """
        ...

    def load(self, directory: Path, plan: Any, options: LoadOptions) -> LoadedModel:
        """Load a model that `make_plan` has prepared."""
        ...


def get_runtime(name: str) -> ModelRuntime:
    """Return the runtime with a name."""
    if name not in RUNTIMES:
        raise InvalidSetting(
            f"no model runtime is named {name!r}. Use one of: {', '.join(sorted(RUNTIMES))}."
        )
    runtime: ModelRuntime = pkgutil.resolve_name(RUNTIMES[name])()
    return runtime
