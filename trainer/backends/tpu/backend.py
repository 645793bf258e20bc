"""A TPU system as the place where a mode runs."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from trainer.backends.base import Evaluation, Prediction, Training
from trainer.backends.tpu import evaluation, lowered_targets, prediction, system, training
from trainer.backends.tpu.diagnostics import nan_errors, xla_error_locations
from trainer.backends.tpu.mode_context import Setting
from trainer.backends.tpu.transfer.error_rendezvous import Rendezvous
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import Topology
from trainer.execution import run_graph
from trainer.execution.iterations_per_loop import IterationPlan
from trainer.execution.keyboard_interrupt import Interruption
from trainer.model.model_program import TPUProgram


class OnTpu:
    """A TPU system, real or emulated; see `trainer.backends.base.Place`."""

    def __init__(self, config: RunConfig, setting: Setting) -> None:
        self._config, self._setting = config, setting
        self._interruption = Interruption()
        self._places = xla_error_locations.Places()
        self.master = setting.device.master

    def graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """A graph that sums over replicas stay in."""
        return run_graph.fresh(config)

    def training(
        self,
        program: TPUProgram,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: IterationPlan,
    ) -> Training:
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
        program: TPUProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> Evaluation:
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
        program: TPUProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> Prediction:
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
            readable = xla_error_locations.explain(error, self._places) or nan_errors.explain(error)
            if readable is None:
                raise
            raise readable from error

    def _watched(self, program: TPUProgram) -> TPUProgram:
        return dataclasses.replace(program, model_fn=self._places.of(program.model_fn))

    def _hooks(self) -> tuple[Any, ...]:
        topology, device = self._setting.topology, self._setting.device
        return (*system.hooks(topology, device, self._config), self._interruption)


def place(program: TPUProgram, mode: str, batch_axis: Any) -> OnTpu:
    """The TPU system that a mode of a program runs on.

    Raises:
      TpuNotFound: there is none.
      InvalidSetting: the program does not fit it.
    """
    device = system.find(program.config, mode)
    topology = Topology(
        device.system, program.config.tpu_config, mode, program.batch_sizes.get(mode)
    )
    topology.check()
    system.say(topology, device)
    return OnTpu(program.config, Setting(topology, device, Rendezvous(), batch_axis))
