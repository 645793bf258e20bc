"""TrainSpec and EvalSpec, the settings of train_and_evaluate."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config.namedtuple_compat import NamedTupleMixin
from trainer.exporting.exporters.base import Exporter
from trainer.model import spec_validation


@dataclass(frozen=True)
class TrainSpec(NamedTupleMixin):
    """The settings of training in train_and_evaluate.

    Attributes:
      input_fn: function that returns batches of (features, labels), as a tf.data.Dataset or as
        tensors.
      max_steps: the global step at which to stop; None trains until the input ends.
      hooks: SessionRunHooks of training; they run in the chief and in every worker.
      saving_listeners: CheckpointSaverListeners; they run in the chief, which saves checkpoints.

    Raises:
      InvalidSetting: max_steps is less than 1.
      InvalidType: input_fn cannot be called, or a hook or a listener has a wrong type.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Any] | None = None
    saving_listeners: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check_callable("TrainSpec input_fn", self.input_fn)
        max_steps = validation.round_up_steps("TrainSpec max_steps", self.max_steps)
        object.__setattr__(self, "max_steps", max_steps)
        object.__setattr__(
            self, "hooks", spec_validation.validate_hooks("TrainSpec hooks", self.hooks)
        )
        listeners = spec_validation.validate_listeners(
            "TrainSpec saving_listeners", self.saving_listeners
        )
        object.__setattr__(self, "saving_listeners", listeners)


@dataclass(frozen=True)
class EvalSpec(NamedTupleMixin):
    """The settings of evaluation and export in train_and_evaluate.

    Attributes:
      input_fn: function that returns batches of (features, labels), as a tf.data.Dataset or as
        tensors.
      steps: the number of batches per evaluation; None evaluates until the input ends.
      name: a name that distinguishes several evaluations of a model, on disk and in TensorBoard;
        None for no name.
      hooks: SessionRunHooks of evaluation.
      exporters: an `Exporter`, or several with distinct names, to call after each evaluation.
      start_delay_secs: the time that an evaluator process waits before its first evaluation, in
        seconds.
      throttle_secs: the minimum time between the starts of two evaluations, in seconds.

    Raises:
      InvalidSetting: a number is out of range, or a name is empty or used twice.
      InvalidType: an argument has a wrong type.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[Any] | None = None
    exporters: Exporter | Iterable[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _check_callable("EvalSpec input_fn", self.input_fn)
        object.__setattr__(self, "steps", validation.round_up_steps("EvalSpec steps", self.steps))
        if self.name is not None and not isinstance(self.name, str):
            raise InvalidType(f"EvalSpec name is {self.name!r}. Give a string, or None.")
        object.__setattr__(
            self, "hooks", spec_validation.validate_hooks("EvalSpec hooks", self.hooks)
        )
        object.__setattr__(self, "exporters", _validate_exporters(self.exporters))
        for name in ("start_delay_secs", "throttle_secs"):
            validation.check_number(f"EvalSpec {name}", getattr(self, name), least=0)


def validate_eval_specs(eval_spec: Any) -> tuple[EvalSpec, ...]:
    """Check that EvalSpecs do not write to the same directories, and return them as a tuple.

    Raises:
      InvalidSetting: the list is empty, or two specs or two exporters have the same name.
    """
    specs = tuple(eval_spec) if isinstance(eval_spec, (list, tuple)) else (eval_spec,)
    for spec in specs:
        if not isinstance(spec, EvalSpec):
            raise InvalidType(f"eval_spec is {spec!r}. Give a trainer.EvalSpec, or a list of them.")
    if not specs:
        raise InvalidSetting("eval_spec is an empty list. Give at least one EvalSpec.")
    # Treat an empty name as None, because an evaluation with an empty name writes to the same
    # directory as an evaluation without a name.
    _check_unique("EvalSpecs are named", [spec.name or None for spec in specs])
    exporters = [exporter.name for spec in specs for exporter in get_exporters(spec)]
    _check_unique("exporters, of all EvalSpecs together, are named", exporters)
    return specs


def get_exporters(spec: EvalSpec) -> tuple[Exporter, ...]:
    """Return the exporters of an EvalSpec, which stores them as a tuple."""
    assert isinstance(spec.exporters, tuple)
    return spec.exporters


def _check_callable(name: str, function: Any) -> None:
    """Check that an argument, such as input_fn, can be called."""
    if not callable(function):
        raise InvalidType(f"{name} is {function!r}, which cannot be called. Give a function.")


def _validate_exporters(exporters: Any) -> tuple[Exporter, ...]:
    """Check the exporters of an EvalSpec, and return them as a tuple."""
    if exporters is None:
        return ()
    if isinstance(exporters, Exporter):
        exporters = (exporters,)
    if not isinstance(exporters, Iterable):
        raise _exporters_type_error(exporters)
    checked = tuple(exporters)
    for exporter in checked:
        if not isinstance(exporter, Exporter):
            raise _exporters_type_error(exporters)
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
    _check_unique("exporters of one EvalSpec are named", [exporter.name for exporter in checked])
    return checked


def _exporters_type_error(exporters: Any) -> InvalidType:
    return InvalidType(
        f"EvalSpec exporters must be an Exporter, an iterable of Exporter, or None; found "
        f"{exporters!r}."
    )


def _check_unique(subject: str, names: Sequence[str | None]) -> None:
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise InvalidSetting(f"two or more {subject} {twice[0]!r}. Give each a name of its own.")
