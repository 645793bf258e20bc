"""What a mode runs, whatever the device: made by `trainer.off_tpu` or by `trainer.tpu`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainer.eval_metrics import Metrics
from trainer.loop import Loop
from trainer.spec import EstimatorSpec


@dataclass(frozen=True)
class Training:
    """A model in training.

    Attributes:
      loop: makes steps.
      spec: what the main graph knows of what model_fn returned.
      hooks: what must run so that the input flows.
    """

    loop: Loop
    spec: EstimatorSpec
    hooks: tuple[Any, ...]


@dataclass(frozen=True)
class Evaluation:
    """A model in evaluation.

    Attributes:
      metrics: their update is to be run until a hook, or the end of the input, stops it.
      spec, hooks: see `Training`.
    """

    metrics: Metrics
    spec: EstimatorSpec
    hooks: tuple[Any, ...]


@dataclass(frozen=True)
class Prediction:
    """A model in prediction.

    Attributes:
      batches: takes a session; gives, until the input ends, each batch of predictions.
      spec, hooks: see `Training`.
    """

    batches: Callable[[Any], Iterator[Any]]
    spec: EstimatorSpec
    hooks: tuple[Any, ...]
