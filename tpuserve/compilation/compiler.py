"""Many modules compiled for many topologies, side by side."""

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tpuserve.compilation import worker
from tpuserve.compilation.cache import CompileCache
from tpuserve.compilation.stats import CompileResult, CompileTarget
from tpuserve.errors import ExtraNotInstalled, InvalidInput

_NEEDED = ("jax", "jaxlib", "libtpu", "loky", "matplotlib", "platformdirs")
_WARNINGS = "PYTHONWARNINGS"
_DIED = "the TPU compiler ended its process without a word, as it does where it runs out of memory"


def require_extra() -> None:
    """Refuses to go on without the packages that compile.

    Raises:
      ExtraNotInstalled: one is missing.
    """
    missing = [each for each in _NEEDED if importlib.util.find_spec(each) is None]
    if missing:
        raise ExtraNotInstalled(
            f"compiling for a TPU needs {', '.join(missing)}. Run: pip install 'tpuserve[compile]' "
            f"(on Python 3.11 or later)"
        )


class Compiler:
    """Worker processes that hold the TPU compiler. Use it as a context manager."""

    def __init__(self, processes: int | None = None, cache: CompileCache | None = None) -> None:
        """Starts nothing yet.

        Args:
          processes: how many compile at once; None for one a core.
          cache: where results are kept and looked for; None for nowhere.
        """
        require_extra()
        self._processes = processes or os.cpu_count() or 1
        self._cache = cache or CompileCache(None)
        self._versions = ", ".join(
            f"{each} {importlib.metadata.version(each)}" for each in ("jaxlib", "libtpu")
        )
        self._pool: Any = None

    def __enter__(self) -> "Compiler":
        self._pool = self._new_pool(self._processes)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)

    def describe(self, names: Sequence[str]) -> list[CompileTarget]:
        """The topologies of some names.

        Raises:
          InvalidInput: libtpu does not know one.
        """
        found = []
        for name in names:
            answer = self._described(name)
            if isinstance(answer, str):
                raise InvalidInput(
                    f"topology {name!r} is none that libtpu compiles for ({answer.splitlines()[0]})"
                    f". Name a generation and its chips, such as v5e:1x1, v5e:2x2 or v4:2x2x1."
                )
            found.append(answer)
        return found

    def _described(self, name: str) -> CompileTarget | str:
        from loky.process_executor import BrokenProcessPool

        try:
            answer: CompileTarget | str = self._pool.submit(worker.describe_topology, name).result()
        except BrokenProcessPool:
            self._renew_pool()
            return "it ends libtpu's process"
        return answer

    def _renew_pool(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)
        self._pool = self._new_pool(self._processes)

    def cached(self, fingerprint: str, topology: str) -> CompileResult | None:
        """What an earlier run found for a module."""
        return self._cache.find(fingerprint, topology, self._versions)

    def compile(
        self,
        modules: Mapping[str, bytes],
        jobs: Sequence[tuple[str, str]],
        on_done: Callable[[], None] = lambda: None,
    ) -> dict[tuple[str, str], CompileResult]:
        """What came of each job.

        Args:
          modules: fingerprint → StableHLO.
          jobs: fingerprint and topology.
          on_done: called after each job.
        """
        from concurrent.futures import as_completed

        from loky.process_executor import BrokenProcessPool

        found: dict[tuple[str, str], CompileResult] = {}
        futures = {}
        # A worker may die while later jobs are still on their way.
        with suppress(BrokenProcessPool):
            for job in jobs:
                submitted = self._pool.submit(worker.compile_module, modules[job[0]], job[1])
                futures[submitted] = job
        for future in as_completed(futures):
            try:
                self._keep(found, futures[future], future.result())
            except BrokenProcessPool:
                continue
            on_done()
        if len(found) < len(jobs):
            self._renew_pool()
        # With one worker all the others are lost. Those jobs have a pool of their own each, so
        # that only the one is lost that does it again.
        for job in jobs:
            if job not in found:
                self._keep(found, job, self._alone(modules[job[0]], job[1]))
                on_done()
        return found

    def _alone(self, module: bytes, topology: str) -> CompileResult | None:
        from loky.process_executor import BrokenProcessPool

        pool = self._new_pool(1)
        try:
            outcome: CompileResult = pool.submit(worker.compile_module, module, topology).result()
        except BrokenProcessPool:
            return None
        finally:
            pool.shutdown(wait=True, kill_workers=True)
        return outcome

    def _keep(
        self,
        found: dict[tuple[str, str], CompileResult],
        job: tuple[str, str],
        outcome: CompileResult | None,
    ) -> None:
        found[job] = outcome or CompileResult(error=_DIED)
        # What a process died of may be this machine's want of memory.
        if outcome is not None:
            self._cache.store(outcome, *job, self._versions)

    def _new_pool(self, processes: int) -> Any:
        import loky

        _begin_tracker()
        return loky.ProcessPoolExecutor(
            processes, env=worker.ENVIRONMENT, initializer=worker.init_worker
        )


def _begin_tracker() -> None:
    """Starts the process that removes the semaphores that this one leaves; it is to do so quietly.

    Which ones an interrupted command has left is nothing that its user has to know.
    """
    from loky.backend import resource_tracker

    before = os.environ.get(_WARNINGS)
    # The one way to tell it: it reads the environment, once.
    os.environ[_WARNINGS] = f"ignore::UserWarning:{resource_tracker.__name__}"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ[_WARNINGS]
        else:
            os.environ[_WARNINGS] = before
