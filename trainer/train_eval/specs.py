"""What train_and_evaluate is asked for: TrainSpec and EvalSpec, checked when they are made."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import validation
from trainer.config.namedtuple_compat import NamedTupleMixin
from trainer.exporting.exporters.base import Exporter


@dataclass(frozen=True)
class TrainSpec(NamedTupleMixin):
    """How train_and_evaluate trains.

    Attributes:
      input_fn: gives batches of (features, labels).
      max_steps: the global step to stop at; None goes on until the input ends.
      hooks: SessionRunHooks of training, on every worker.
      saving_listeners: told about each checkpoint, on the chief.

    Raises:
      InvalidSetting: max_steps is less than 1.
      InvalidType: input_fn cannot be called, or hooks holds something else.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Any] | None = None
    saving_listeners: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _demand_callable("TrainSpec input_fn", self.input_fn)
        max_steps = validation.whole_steps("TrainSpec max_steps", self.max_steps)
        object.__setattr__(self, "max_steps", max_steps)
        object.__setattr__(self, "hooks", _checked_hooks("TrainSpec hooks", self.hooks))
        object.__setattr__(self, "saving_listeners", tuple(self.saving_listeners or ()))


@dataclass(frozen=True)
class EvalSpec(NamedTupleMixin):
    """How train_and_evaluate evaluates, and what it exports afterwards.

    Attributes:
      input_fn: gives batches of (features, labels).
      steps: how many batches; None goes on until the input ends.
      name: tells several evaluations of one model apart, on disk and in TensorBoard.
      hooks: SessionRunHooks of evaluation.
      exporters: an `Exporter`, or several with names of their own; called after each evaluation.
      start_delay_secs: how long an evaluator process waits before its first evaluation.
      throttle_secs: the least time between the starts of two evaluations.

    Raises:
      InvalidSetting: a number is out of range, or a name is empty or given twice.
      InvalidType: an argument is of another type than it takes.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[Any] | None = None
    exporters: Exporter | Iterable[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _demand_callable("EvalSpec input_fn", self.input_fn)
        object.__setattr__(self, "steps", validation.whole_steps("EvalSpec steps", self.steps))
        if self.name is not None and not isinstance(self.name, str):
            raise InvalidType(f"EvalSpec name is {self.name!r}. Give a string, or None.")
        object.__setattr__(self, "hooks", _checked_hooks("EvalSpec hooks", self.hooks))
        object.__setattr__(self, "exporters", _checked_exporters(self.exporters))
        for name in ("start_delay_secs", "throttle_secs"):
            validation.check_duration(f"EvalSpec {name}", getattr(self, name), optional=False)


def validate_eval_specs(eval_spec: Any) -> tuple[EvalSpec, ...]:
    """One or several EvalSpecs as a tuple, none of which writes where another does.

    Raises:
      InvalidSetting: no spec, two of one name, or two with exporters of one name.
      InvalidType: something else than EvalSpecs.
    """
    specs = tuple(eval_spec) if isinstance(eval_spec, (list, tuple)) else (eval_spec,)
    for spec in specs:
        if not isinstance(spec, EvalSpec):
            raise InvalidType(f"eval_spec is {spec!r}. Give a trainer.EvalSpec, or a list of them.")
    if not specs:
        raise InvalidSetting("eval_spec is an empty list. Give at least one EvalSpec.")
    # Evaluations without a name and with an empty one share a directory.
    _demand_unique("EvalSpecs are named", [spec.name or None for spec in specs])
    exporters = [each.name for spec in specs for each in get_exporters(spec)]
    _demand_unique("exporters, of all EvalSpecs together, are named", exporters)
    return specs


def get_exporters(spec: EvalSpec) -> tuple[Exporter, ...]:
    """The exporters of a spec, which has made a tuple of them."""
    assert isinstance(spec.exporters, tuple)
    return spec.exporters


def _demand_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise InvalidType(f"{name} is {function!r}, which cannot be called. Give a function.")


def _checked_hooks(name: str, hooks: Sequence[Any] | None) -> tuple[Any, ...]:
    checked = tuple(hooks or ())
    for hook in checked:
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise InvalidType(f"{name} holds {hook!r}. Give SessionRunHook instances.")
    return checked


def _checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    if exporters is None:
        return ()
    if isinstance(exporters, Exporter):
        exporters = (exporters,)
    if not isinstance(exporters, Iterable):
        raise _not_exporters(exporters)
    checked = tuple(exporters)
    for exporter in checked:
        if not isinstance(exporter, Exporter):
            raise _not_exporters(exporters)
        if not isinstance(exporter.name, (str, type(None))):
            raise InvalidType(
                f"an Exporter must have a string name; found {exporter.name!r}. It names the "
                f"directory of its exports."
            )
        if not exporter.name:
            raise InvalidSetting(
                f"an Exporter cannot have a name that is None or empty; found {exporter.name!r}. "
                f"It names the directory of its exports."
            )
    _demand_unique("exporters of one EvalSpec are named", [each.name for each in checked])
    return checked


def _not_exporters(found: Any) -> InvalidType:
    return InvalidType(
        f"EvalSpec exporters must be an Exporter, an iterable of Exporter, or None; found "
        f"{found!r}."
    )


def _demand_unique(what: str, names: Sequence[str | None]) -> None:
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise InvalidSetting(f"two or more {what} {twice[0]!r}. Give each a name of its own.")
