"""A TPU system as the place where a mode runs."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from trainer.backends.base import EvalGraph, PredictGraph, TrainGraph
from trainer.backends.tpu import evaluation, lowered_targets, prediction, system, training
from trainer.backends.tpu.diagnostics import nan_errors, xla_error_locations
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import BatchTopology
from trainer.execution import run_graph
from trainer.execution.iterations_per_loop import IterationPlan
from trainer.execution.keyboard_interrupt import KeyboardInterruptHook
from trainer.model.model_program import TPUModelProgram


class TpuBackend:
    """A TPU system, real or emulated; see `trainer.backends.base.ExecutionBackend`."""

    def __init__(self, config: RunConfig, setting: TpuModeContext) -> None:
        self._config, self._setting = config, setting
        self._interruption = KeyboardInterruptHook()
        self._places = xla_error_locations.SourceLocations()
        self.master = setting.device.master

    def graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """A graph that sums over replicas stay in."""
        return run_graph.new_run_graph(config)

    def training(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: IterationPlan,
    ) -> TrainGraph:
        """See `trainer.backends.tpu.training`."""
        built = training.build(
            self._watched(program),
            input_fn,
            global_step,
            checkpoint,
            plan,
            self._setting,
        )
        return dataclasses.replace(built, hooks=(*self._hooks(), *built.hooks))

    def evaluation(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> EvalGraph:
        """See `trainer.backends.tpu.evaluation`."""
        built = evaluation.build(
            self._watched(program),
            input_fn,
            checkpoint,
            steps,
            self._setting,
        )
        return dataclasses.replace(built, hooks=(*self._hooks(), *built.hooks))

    def prediction(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> PredictGraph:
        """See `trainer.backends.tpu.prediction`."""
        built = prediction.build(
            self._watched(program),
            input_fn,
            checkpoint,
            select,
            self._setting,
        )
        return dataclasses.replace(built, hooks=(*self._hooks(), *built.hooks))

    def session_config(self, proto: Any) -> Any:
        """See `trainer.backends.tpu.lowered_targets`."""
        return lowered_targets.session_config(proto, self._setting.device)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The system is up meanwhile, and the first cause of a failure is raised at the end."""
        try:
            with (
                self._interruption,
                system.up(self._setting.topology, self._setting.device, self._config),
                self._setting.rendezvous,
            ):
                yield
        except Exception as error:
            readable = xla_error_locations.explain_xla_error(
                error, self._places
            ) or nan_errors.explain_nan_error(error)
            if readable is None:
                raise
            raise readable from error

    def _watched(self, program: TPUModelProgram) -> TPUModelProgram:
        return dataclasses.replace(program, model_fn=self._places.recording(program.model_fn))

    def _hooks(self) -> tuple[Any, ...]:
        topology, device = self._setting.topology, self._setting.device
        return (*system.hooks(topology, device, self._config), self._interruption)


def place(program: TPUModelProgram, mode: str, batch_axis: Any) -> TpuBackend:
    """The TPU system that a mode of a program runs on.

    Raises:
      TpuNotFound: there is none.
      InvalidSetting: the program does not fit it.
    """
    device = system.find(program.config, mode)
    topology = BatchTopology(
        device.system, program.config.tpu_config, mode, program.batch_sizes.get(mode)
    )
    topology.check()
    system.say(topology, device)
    return TpuBackend(
        program.config, TpuModeContext(topology, device, ErrorRendezvous(), batch_axis)
    )
