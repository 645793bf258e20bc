"""Prediction: a generator over what a checkpoint makes of an input."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer import checkpoints, graph, off_tpu, session
from trainer.program import Program
from trainer.spec import ModeKeys


def predict(
    program: Program,
    input_fn: Callable[..., Any],
    *,
    predict_keys: Sequence[str] | str | None = None,
    hooks: Sequence[Any] = (),
    checkpoint_path: str | None = None,
    yield_single_examples: bool = True,
) -> Iterator[Any]:
    """Predictions in the order of the input, until it ends.

    Args:
      program: what predicts.
      input_fn: gives batches of features; labels, if there are any, reach model_fn.
      predict_keys: which predictions to yield, where they are a dict; None for all.
      hooks: the caller's; they come first.
      checkpoint_path: which checkpoint; None for the newest.
      yield_single_examples: yield row by row; False yields whole batches.

    Yields:
      What model_fn gave as predictions, as numpy values: an array, or a dict of arrays.

    Raises:
      CheckpointNotFound: there is nothing to predict with.
    """
    checkpoint = checkpoints.find(program.model_dir, checkpoint_path)
    with graph.fresh(program.config, has_one_replica=True):
        model = off_tpu.build(program, input_fn, ModeKeys.PREDICT, checkpoint)
        fetches = _selected(model.spec.predictions, predict_keys)
        all_hooks = [*hooks, *model.hooks, *(model.spec.prediction_hooks or ())]
        scaffold = checkpoints.with_saver(model.spec.scaffold, program.config)
        predicting = session.monitored(
            program.config, scaffold, all_hooks, checkpoint_path=checkpoint
        )
    # The graph is no longer the default one here: a generator must not leave it so between
    # two rows.
    with predicting:
        while not predicting.should_stop():
            try:
                batch = predicting.run(fetches)
            except tf.errors.OutOfRangeError:
                return
            yield from _rows(batch) if yield_single_examples else [batch]


def _selected(predictions: Any, keys: Sequence[str] | str | None) -> Any:
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise InvalidSetting(
            f"predict_keys is {keys!r}, and predictions are no dict. Leave predict_keys out."
        )
    wanted = [keys] if isinstance(keys, str) else list(keys)
    selected = {name: each for name, each in predictions.items() if name in wanted}
    if not selected:
        raise InvalidSetting(
            f"predict_keys {wanted} name none of the predictions {sorted(predictions)}."
        )
    return selected


def _rows(batch: Any) -> Iterator[Any]:
    if not isinstance(batch, dict):
        yield from batch
        return
    lengths = {name: np.shape(each)[:1] for name, each in batch.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        raise InvalidSetting(
            f"predictions of unequal lengths cannot be yielded row by row: {lengths}. Pass "
            f"yield_single_examples=False."
        )
    (count,) = next(iter(lengths.values()))
    for row in range(count):
        yield {name: each[row] for name, each in batch.items()}
