"""Predicts with a checkpoint: yields the predictions of a model for the batches of an input_fn."""

import atexit
import contextlib
import logging
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.backends.base import ExecutionBackend
from trainer.checkpoints import checkpoints
from trainer.model.model_program import ModelProgram

logger = logging.getLogger("tensorflow.trainer")


def predict(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    backend: ExecutionBackend,
    *,
    predict_keys: Sequence[str] | str | None = None,
    hooks: Sequence[Any] = (),
    checkpoint_path: str | None = None,
    yield_single_examples: bool = True,
) -> Generator[Any, None, None]:
    """Return a generator of predictions in the order of the input.

    Args:
      predict_keys: the names of the predictions to yield, if predictions are a dict; None for all.
      hooks: the user's SessionRunHooks. They are called before all other hooks but
        those that initialize the input.
      checkpoint_path: the checkpoint to predict with; None for the newest, or for initial values if
        there is no checkpoint.

    Returns:
      A generator of numpy arrays, or of dicts of numpy arrays. The graph is built when the first
      value is requested.
    """
    predictions = _generate_predictions(
        program, input_fn, backend, predict_keys, hooks, checkpoint_path, yield_single_examples
    )
    _open_generators.add(predictions)
    return predictions


_END = object()

# The generators that `predict` has returned. If a program stops using a generator before its end,
# the session of the generator stays open. So all generators are closed when the interpreter exits.
_open_generators: "weakref.WeakSet[Generator[Any, None, None]]" = weakref.WeakSet()


@atexit.register
def _close_generators() -> None:
    # Close the sessions before the interpreter finalizes. During finalization, no other thread can
    # run Python code. A session that waits for a Python function of its input would block forever.
    for generator in list(_open_generators):
        with contextlib.suppress(Exception):
            generator.close()


def _generate_predictions(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    backend: ExecutionBackend,
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
    with backend.new_graph(program.config):
        predict_graph = backend.build_predict_graph(
            program,
            input_fn,
            checkpoint,
            lambda predictions: _select_predictions(predictions, predict_keys),
        )
        all_hooks = [
            *predict_graph.input_hooks,
            *hooks,
            *predict_graph.hooks,
            *(predict_graph.spec.prediction_hooks or ()),
        ]
        scaffold = checkpoints.scaffold_with_saver(predict_graph.spec.scaffold, program.config)
        session = backend.create_session(
            program.config,
            scaffold,
            all_hooks,
            checkpoint_path=checkpoint,
            recovers_lost_session=False,
        )
        graph = session.graph
    # Make the graph the default graph only while hooks run, because hooks expect this. While the
    # generator is suspended, the code that uses the generator needs its own default graph.
    with backend.run_scope(), contextlib.ExitStack() as exit_stack:
        exit_stack.push(_exit_in_graph(graph, session))
        batches = predict_graph.read_batches(session)
        is_empty = True
        while True:
            with graph.as_default():
                batch = next(batches, _END)
            if batch is _END:
                break
            is_empty = False
            yield from _split_rows(batch) if yield_single_examples else [batch]
        if is_empty:
            logger.warning(
                "input_fn gave no batch to predict. If it has rows, drop_remainder=True drops "
                "fewer than a batch"
            )


def _exit_in_graph(graph: Any, session: Any) -> Callable[..., bool | None]:
    def exit_session(*error: Any) -> bool | None:
        with graph.as_default():
            is_handled: bool | None = session.__exit__(*error)
            return is_handled

    return exit_session


def _select_predictions(predictions: Any, keys: Sequence[str] | str | None) -> Any:
    if not keys:
        return predictions
    if not isinstance(keys, Iterable):
        raise InvalidType(
            f"predict_keys is {keys!r}. Give names of predictions, and pass the arguments after it "
            f"by name."
        )
    if not isinstance(predictions, dict):
        raise InvalidSetting(
            f"predict_keys is {keys!r}, and predictions are not a dict. Leave predict_keys out."
        )
    names = [keys] if isinstance(keys, str) else list(keys)
    selected = {name: value for name, value in predictions.items() if name in names}
    if not selected:
        raise InvalidSetting(
            f"predict_keys {names} name none of the predictions {sorted(predictions)}."
        )
    return selected


def _split_rows(batch: Any) -> Iterator[Any]:
    if not isinstance(batch, dict):
        yield from batch
        return
    lengths = {name: np.shape(value)[:1] for name, value in batch.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        raise InvalidSetting(
            f"predictions of unequal lengths cannot be yielded row by row: {lengths}. Pass "
            f"yield_single_examples=False."
        )
    (count,) = next(iter(lengths.values()))
    for row in range(count):
        yield {name: value[row] for name, value in batch.items()}
