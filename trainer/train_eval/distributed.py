"""Implements train_and_evaluate for the tasks of a cluster, such as chief, worker and evaluator."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointNotFound, Code, CodedError, InvalidSetting
from trainer.backends import monitored_session as sessions
from trainer.checkpoints import checkpoints
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator
from trainer.train_eval.specs import TrainSpec

_FILE_NAME = "training_ended.json"


def write_marker(model_dir: str, step: int, max_steps: int | None) -> None:
    """Write the file that informs the evaluator process that training has ended.

    Call this function only after the last checkpoint has been saved.

    Args:
      max_steps: the max_steps of the training run; None if it had no limit.
    """
    path = _path(model_dir)
    # Write the marker under another name and rename the file. A rename is atomic, so the evaluator
    # never reads an incomplete marker.
    with tf.io.gfile.GFile(f"{path}.temp", "w") as file:
        file.write(json.dumps({"step": step, "max_steps": max_steps}))
    tf.io.gfile.rename(f"{path}.temp", path, overwrite=True)


def remove_marker(model_dir: str) -> None:
    """Remove the completion marker of an earlier training run, because training continues."""
    if tf.io.gfile.exists(_path(model_dir)):
        tf.io.gfile.remove(_path(model_dir))


def read_completed_step(model_dir: str, max_steps: int | None) -> int | None:
    """Read from the completion marker the global step at which training ended.

    Returns:
      None if training has not ended.
    """
    try:
        with tf.io.gfile.GFile(_path(model_dir), "r") as file:
            marker = json.loads(file.read())
    except tf.errors.NotFoundError:
        return None
    return int(marker["step"]) if marker["max_steps"] == max_steps else None


def _path(model_dir: str) -> str:
    path: str = tf.io.gfile.join(model_dir, _FILE_NAME)
    return path


logger = logging.getLogger("tensorflow.trainer")

Sleep = Callable[[float], None]

# Worker 0 waits this time, in seconds, before it trains; worker 1 waits twice as long, and so on,
# up to a maximum. The delay gives the chief time to initialize the variables.
_DELAY_SECS_PER_WORKER = 5
_MAX_DELAY_SECS = 60

_POLL_SECS = 1

# (cluster, job, task index) → the running server. It is reused, because a server does not release
# its port before the process ends, so a second server could not start.
_servers: dict[tuple[str, str, int], Any] = {}


@contextmanager
def running_server(config: Any) -> Iterator[Any]:
    """Start the TensorFlow server of this process for a with block, or reuse a running server.

    The server keeps running after the block.

    Yields:
      The tf.distribute.Server; None for a cluster of a single process, which needs no server.

    Raises:
      InvalidSetting: the RunConfig lacks the cluster, the task or the master.
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
    yield _start_server(config)


def _start_server(config: Any) -> Any:
    """Start the TensorFlow server of this process, or return the running server."""
    spec, job, index = config.cluster_spec, config.task_type, config.task_id
    key = str(spec), job, index
    if key not in _servers:
        try:
            _servers[key] = tf.distribute.Server(
                spec,
                job_name=job,
                task_index=index,
                protocol=config.protocol,
                config=sessions.config_proto(config),
            )
        except tf.errors.UnknownError as error:
            raise CodedError(
                f"{job} {index} cannot listen at {spec.task_address(job, index)}: {error.message}. "
                f"End the process that uses the port, or give the task another address, in all "
                f"processes.",
                Code.UNAVAILABLE,
            ) from error
        logger.info("%s %d serves at %s", job, index, _servers[key].target)
    return _servers[key]


def train_as_chief(estimator: Any, train_spec: TrainSpec) -> None:
    """Train as the chief of a cluster, and inform the evaluator process when training has ended."""
    with running_server(estimator.config):
        remove_marker(estimator.model_dir)
        _train(estimator, train_spec)
        newest = estimator.latest_checkpoint()
        if newest is not None:
            step = checkpoints.read_global_step(newest)
            write_marker(estimator.model_dir, step, train_spec.max_steps)


def train_as_worker(estimator: Any, train_spec: TrainSpec) -> None:
    """Train as a worker of a cluster, after a delay.

    Unlike the chief, a worker saves no checkpoints.
    """
    with running_server(estimator.config):
        delay = worker_delay_secs(estimator.config)
        if delay > 0:
            logger.info("waiting %g s before training", delay)
            time.sleep(delay)
        _train(estimator, train_spec)


def _train(estimator: Any, train_spec: TrainSpec) -> None:
    estimator.train(
        train_spec.input_fn,
        max_steps=train_spec.max_steps,
        hooks=list(train_spec.hooks or ()),
        saving_listeners=list(train_spec.saving_listeners or ()),
    )


def worker_delay_secs(config: Any) -> float:
    """Return how long a worker of a cluster waits before it trains, in seconds."""
    max_delay = config.experimental_max_worker_delay_secs
    if max_delay is None:
        max_delay = _MAX_DELAY_SECS
    return float(min(max_delay, (config.task_id + 1) * _DELAY_SECS_PER_WORKER))


def run_parameter_server(config: Any) -> None:
    """Run the TensorFlow server of a parameter server, which holds variables, without end."""
    with running_server(config) as server:
        server.join()


def evaluate_continuously(
    evaluators: Sequence[CheckpointEvaluator],
    model_dir: str,
    max_steps: int | None,
    sleep: Sleep = time.sleep,
) -> None:
    """Evaluate each new checkpoint that the chief writes, until training is over.

    Training is over at max_steps, or when the chief has written the completion marker.

    Args:
      max_steps: the global step at which training ends; None if training ends with its input.
      sleep: function that waits for a number of seconds.
    """
    unfinished = list(evaluators)
    while unfinished:
        # Read the completion marker before the evaluators look for the newest checkpoint. The chief
        # writes the marker after the last checkpoint.
        last_step = read_completed_step(model_dir, max_steps)
        for evaluator in list(unfinished):
            if evaluator.is_due() and _is_finished(evaluator, last_step, max_steps):
                unfinished.remove(evaluator)
        if unfinished:
            sleep(_POLL_SECS)


def _is_finished(
    evaluator: CheckpointEvaluator, last_step: int | None, max_steps: int | None
) -> bool:
    """Evaluate the newest checkpoint, and return whether it is the last one of the training run."""
    try:
        evaluator.evaluate(is_final=False)
    except (CheckpointNotFound, tf.errors.NotFoundError) as error:
        # A file of the checkpoint is missing: training keeps only a few checkpoints, and may have
        # removed this checkpoint meanwhile. Try again later with a newer checkpoint.
        logger.warning("the checkpoint was removed before it could be evaluated: %s", error)
        return False
    step = evaluator.global_step
    if step is None:
        return False
    if last_step is not None and step >= last_step:
        evaluator.evaluate(is_final=True)
        return True
    return max_steps is not None and step >= max_steps
