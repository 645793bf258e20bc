"""The parts that the processes of a cluster play in train_and_evaluate."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointNotFound, InvalidSetting
from trainer.backends import monitored_session as sessions
from trainer.checkpoints import checkpoints
from trainer.train_eval import completion_marker
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator
from trainer.train_eval.specs import TrainSpec

logger = logging.getLogger("tensorflow.trainer")

Sleep = Callable[[float], None]

# Workers start one after the other, so that the chief has initialised the variables by then.
_DELAY_SECS_PER_WORKER = 5
_MAX_DELAY_SECS = 60

_POLL_SECS = 1

# A process cannot give its port back, and serves there until it ends.
_servers: dict[tuple[str, str, int], Any] = {}


@contextmanager
def running_server(config: Any) -> Iterator[Any]:
    """The TensorFlow server of this process, while it is needed; None in a cluster of one.

    Raises:
      InvalidSetting: the config does not say which process of which cluster this is.
    """
    if not config.cluster_spec or not config.task_type or config.task_id is None:
        raise InvalidSetting(
            f"cannot start a server: the config has cluster_spec={config.cluster_spec!r}, "
            f"task_type={config.task_type!r}, task_id={config.task_id!r}. Set all of them by "
            f"TF_CONFIG."
        )
    tasks = [config.cluster_spec.job_tasks(job) for job in config.cluster_spec.jobs]
    if not config.master and sum(map(len, tasks)) == 1 and config.task_type != "ps":
        yield None
        return
    if not config.master:
        raise InvalidSetting(
            "cannot start a server: the config has no master, and its cluster several processes. "
            "Set TF_CONFIG, or RunConfig's master."
        )
    place = str(config.cluster_spec), config.task_type, config.task_id
    if place not in _servers:
        _servers[place] = tf.distribute.Server(
            config.cluster_spec,
            job_name=config.task_type,
            task_index=config.task_id,
            protocol=config.protocol,
            config=sessions.config_proto(config),
        )
        target = _servers[place].target
        logger.info("%s %d serves at %s", config.task_type, config.task_id, target)
    yield _servers[place]


def train_as_chief(estimator: Any, train_spec: TrainSpec) -> None:
    """Trains, and tells an evaluator in another process when there is nothing more to wait for.

    Args:
      estimator: what to train.
      train_spec: how.
    """
    with running_server(estimator.config):
        completion_marker.remove_marker(estimator.model_dir)
        _train(estimator, train_spec)
        newest = estimator.latest_checkpoint()
        if newest is not None:
            step = checkpoints.read_global_step(newest)
            completion_marker.write_marker(estimator.model_dir, step, train_spec.max_steps)


def train_as_worker(estimator: Any, train_spec: TrainSpec, sleep: Sleep = time.sleep) -> None:
    """Trains beside the chief, which alone writes checkpoints.

    Args:
      estimator: what to train.
      train_spec: how.
      sleep: waits for seconds.
    """
    with running_server(estimator.config):
        delay = worker_delay_secs(estimator.config)
        if delay > 0:
            logger.info("waiting %g s before training", delay)
            sleep(delay)
        _train(estimator, train_spec)


def _train(estimator: Any, train_spec: TrainSpec) -> None:
    estimator.train(
        train_spec.input_fn,
        max_steps=train_spec.max_steps,
        hooks=list(train_spec.hooks or ()),
        saving_listeners=list(train_spec.saving_listeners or ()),
    )


def worker_delay_secs(config: Any) -> float:
    """How long a worker waits before it trains, in seconds."""
    most = config.experimental_max_worker_delay_secs
    if most is None:
        most = _MAX_DELAY_SECS
    return float(min(most, (config.task_id + 1) * _DELAY_SECS_PER_WORKER))


def run_parameter_server(config: Any) -> None:
    """Holds variables for the others, without end."""
    with running_server(config) as server:
        server.join()


def evaluate_continuously(
    evaluators: Sequence[CheckpointEvaluator],
    model_dir: str,
    max_steps: int | None,
    sleep: Sleep = time.sleep,
) -> None:
    """Evaluates each new checkpoint of other processes until their training is over.

    It is over at max_steps, or where the chief has declared its end.

    Args:
      evaluators: what to evaluate, each no more often than it is due.
      model_dir: where the checkpoints appear.
      max_steps: where training is to end; None if only its input ends it.
      sleep: waits for seconds.
    """
    unfinished = list(evaluators)
    while unfinished:
        # Read before the newest checkpoint is looked up, which is then of the end or later.
        last_step = completion_marker.read_completed_step(model_dir, max_steps)
        for evaluator in list(unfinished):
            if evaluator.is_due() and _is_finished(evaluator, last_step, max_steps):
                unfinished.remove(evaluator)
        if unfinished:
            sleep(_POLL_SECS)


def _is_finished(
    evaluator: CheckpointEvaluator, last_step: int | None, max_steps: int | None
) -> bool:
    try:
        evaluator.evaluate(is_final=False)
    except (CheckpointNotFound, tf.errors.NotFoundError) as error:
        # Training keeps a few checkpoints, and may remove one that is about to be read.
        logger.warning("the checkpoint has gone before it could be evaluated: %s", error)
        return False
    step = evaluator.global_step
    if step is None:
        return False
    if last_step is not None and step >= last_step:
        evaluator.evaluate(is_final=True)
        return True
    return max_steps is not None and step >= max_steps
