"""Compiles StableHLO modules for TPU topologies in parallel worker processes."""

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
from tpuserve.stablehlo import jax_internals

_REQUIRED_PACKAGES = ("jax", "jaxlib", "libtpu", "loky", "matplotlib", "platformdirs")
_WARNINGS_VARIABLE = "PYTHONWARNINGS"

WORKER_DIED = (
    "the TPU compiler's process ended without a message, which happens when memory runs out"
)
"""The error of a job that crashes its worker process."""


def require_extra() -> None:
    """Check that the packages of the extra compile, such as jax, are installed."""
    missing = [name for name in _REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExtraNotInstalled(
            f"compiling for a TPU needs {', '.join(missing)}. Run: pip install '.[compile]'"
        )


def _ignore_done() -> None:
    pass


class Compiler:
    """A pool of worker processes that run the TPU compiler, for use in a `with` block.

    Args:
      processes: Number of worker processes; None for the number of processor cores.
    """

    def __init__(self, processes: int | None = None, cache: CompileCache | None = None) -> None:
        require_extra()
        self._processes = processes or os.cpu_count() or 1
        self._cache = cache or CompileCache(None)
        self._versions = ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in ("jaxlib", "libtpu")
        )
        self._pool: Any = None

    def __enter__(self) -> "Compiler":
        self._pool = _start_pool(self._processes)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)

    def describe_targets(self, topologies: Sequence[str]) -> list[CompileTarget]:
        """Ask libtpu for the device type and the devices per chip of each topology.

        Args:
          topologies: Names in libtpu's notation, such as "v5e:2x2".
        """
        self._check_jax()
        targets = []
        for topology in topologies:
            target = self._describe_target(topology)
            if isinstance(target, str):
                raise InvalidInput(
                    f"libtpu does not support topology {topology!r} ({target.splitlines()[0]}). "
                    f"Give a generation and its chips, such as v5e:1x1, v5e:2x2 or v4:2x2x1."
                )
            targets.append(target)
        return targets

    def _check_jax(self) -> None:
        missing = self._pool.submit(worker.find_missing_jax_parts).result()
        if missing:
            raise ExtraNotInstalled(
                f"{jax_internals.describe_versions()} lack {', '.join(missing)}, which compiling "
                f"for a TPU uses. Install the supported versions: pip install '.[compile]'"
            )

    def _describe_target(self, topology: str) -> CompileTarget | str:
        from loky.process_executor import BrokenProcessPool

        try:
            target: CompileTarget | str = self._pool.submit(
                worker.describe_topology, topology
            ).result()
        except BrokenProcessPool:
            self._restart_pool()
            return "libtpu aborts on this name"
        return target

    def _restart_pool(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)
        self._pool = _start_pool(self._processes)

    def find_cached(self, fingerprint: str, topology: str) -> CompileResult | None:
        """Return the cached result of compiling a module for a topology; None if not cached."""
        return self._cache.find(fingerprint, topology, self._versions)

    def compile(
        self,
        modules: Mapping[str, bytes],
        jobs: Sequence[tuple[str, str]],
        on_done: Callable[[], None] = _ignore_done,
    ) -> dict[tuple[str, str], CompileResult]:
        """Compile StableHLO modules for topologies, and store the results in the cache.

        Args:
          modules: Fingerprint → StableHLO in its portable form.

        Returns:
          Pair from `jobs` → its result, which holds an error if the module does not compile.
        """
        arguments = {job: (modules[job[0]], job[1]) for job in jobs}

        def on_result(job: tuple[str, str], result: CompileResult) -> None:
            self._store(job, result)
            on_done()

        died = CompileResult(error=WORKER_DIED)
        return self.run_jobs(worker.compile_module, arguments, died, on_result)

    def run_jobs(
        self,
        function: Callable[..., Any],
        arguments: Mapping[Any, tuple[Any, ...]],
        died: Any,
        on_result: Callable[[Any, Any], None],
    ) -> dict[Any, Any]:
        """Call a compile function in the worker processes, once for each job.

        A job is any hashable key, such as a pair of module and topology.

        Args:
          function: The function to call, which must be importable in a worker process.
        """
        from concurrent.futures import as_completed

        from loky.process_executor import BrokenProcessPool

        results: dict[Any, Any] = {}
        futures = {}
        # If a worker process dies while jobs are submitted, submit no more jobs to this pool.
        # Jobs without a result are run again one by one below.
        with suppress(BrokenProcessPool):
            for job, values in arguments.items():
                futures[self._pool.submit(function, *values)] = job
        for future in as_completed(futures):
            try:
                result = future.result()
            except BrokenProcessPool:
                continue
            results[futures[future]] = result
            on_result(futures[future], result)
        if len(results) < len(arguments):
            self._restart_pool()
        # When a worker process dies, all unfinished jobs of the pool are lost. Run each lost job
        # again in a separate process, so that only the job that crashes the compiler fails.
        for job, values in arguments.items():
            if job not in results:
                results[job] = _run_isolated(function, values, died)
                on_result(job, results[job])
        return results

    def _store(self, job: tuple[str, str], result: CompileResult) -> None:
        # Do not cache the result of a job whose worker process died. The machine may have had too
        # little memory at the time, so the job may succeed next time.
        if result.error != WORKER_DIED:
            self._cache.store(result, *job, self._versions)


def _run_isolated(function: Callable[..., Any], values: tuple[Any, ...], died: Any) -> Any:
    """Call a function in a process that runs nothing else; return `died` if the process crashes."""
    from loky.process_executor import BrokenProcessPool

    pool = _start_pool(1)
    try:
        return pool.submit(function, *values).result()
    except BrokenProcessPool:
        return died
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def _start_pool(processes: int) -> Any:
    import loky

    _start_resource_tracker()
    return loky.ProcessPoolExecutor(
        processes, env=worker.ENVIRONMENT, initializer=worker.init_worker
    )


def _start_resource_tracker() -> None:
    """Start loky's resource tracker, with its warnings about leaked semaphores turned off."""
    from loky.backend import resource_tracker

    before = os.environ.get(_WARNINGS_VARIABLE)
    # Turn the tracker's warnings off by an environment variable, because the tracker is a process
    # that takes no other configuration.
    os.environ[_WARNINGS_VARIABLE] = f"ignore::UserWarning:{resource_tracker.__name__}"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ[_WARNINGS_VARIABLE]
        else:
            os.environ[_WARNINGS_VARIABLE] = before
