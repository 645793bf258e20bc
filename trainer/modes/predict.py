"""Prediction: a generator over what a checkpoint makes of an input."""

import atexit
import contextlib
import logging
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from tpuserve.errors import InvalidSetting
from trainer.backends import monitored_session as sessions
from trainer.backends.base import ExecutionBackend
from trainer.checkpoints import checkpoints
from trainer.model.model_program import ModelProgram

logger = logging.getLogger("tensorflow.trainer")


def predict(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    place: ExecutionBackend,
    *,
    predict_keys: Sequence[str] | str | None = None,
    hooks: Sequence[Any] = (),
    checkpoint_path: str | None = None,
    yield_single_examples: bool = True,
) -> Generator[Any, None, None]:
    """Predictions in the order of the input, until it ends.

    Args:
      program: what predicts.
      place: where it runs.
      input_fn: gives batches of features; labels, if there are any, reach model_fn.
      predict_keys: which predictions to yield, where they are a dict; None for all.
      hooks: the caller's; they come first.
      checkpoint_path: which checkpoint; None for the newest, or for initial values where there is
        none.
      yield_single_examples: yield row by row; False yields whole batches.

    Returns:
      A generator of what model_fn gave as predictions, as numpy values: an array, or a dict of
      arrays. It starts when it is first asked, and raises CheckpointNotFound then if the checkpoint
      that was asked for is not there.
    """
    predictions = _predictions(
        program, input_fn, place, predict_keys, hooks, checkpoint_path, yield_single_examples
    )
    _unfinished.add(predictions)
    return predictions


_NO_MORE = object()

# Generators that may have been left half read.
_unfinished: "weakref.WeakSet[Generator[Any, None, None]]" = weakref.WeakSet()


@atexit.register
def _close_unfinished() -> None:
    # Later an interpreter that ends lets no other thread run Python: a session that waits for a
    # Python function of its input pipeline would wait for ever.
    for each in list(_unfinished):
        with contextlib.suppress(Exception):
            each.close()


def _predictions(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    place: ExecutionBackend,
    predict_keys: Sequence[str] | str | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    yield_single_examples: bool,
) -> Generator[Any, None, None]:
    checkpoint = checkpoints.find_checkpoint_or_none(program.model_dir, checkpoint_path)
    if checkpoint is None:
        logger.warning(
            "Could not find trained model in %s: predicting with initial values", program.model_dir
        )
    with place.graph(program.config):
        model = place.prediction(
            program, input_fn, checkpoint, lambda each: _selected(each, predict_keys)
        )
        all_hooks = [*hooks, *model.hooks, *(model.spec.prediction_hooks or ())]
        scaffold = checkpoints.scaffold_with_saver(model.spec.scaffold, program.config)
        predicting = sessions.create_monitored_session(
            program.config,
            place,
            scaffold,
            all_hooks,
            checkpoint_path=checkpoint,
            recovers=False,
        )
        model_graph = predicting.graph
    # Hooks find their graph as the default one; a generator must not leave it so between two rows.
    with place.running(), contextlib.ExitStack() as ending:
        ending.push(_exit_in(model_graph, predicting))
        batches = model.batches(predicting)
        while True:
            with model_graph.as_default():
                batch = next(batches, _NO_MORE)
            if batch is _NO_MORE:
                break
            yield from _rows(batch) if yield_single_examples else [batch]


def _exit_in(graph: Any, session: Any) -> Callable[..., bool | None]:
    """Closes a session while its graph is the default one."""

    def leave(*error: Any) -> bool | None:
        with graph.as_default():
            is_handled: bool | None = session.__exit__(*error)
            return is_handled

    return leave


def _selected(predictions: Any, keys: Sequence[str] | str | None) -> Any:
    if not keys:
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
