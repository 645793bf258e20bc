"""Measures lookups and updates of an embedding table against tf.nn.embedding_lookup_sparse.

$ python -m benchmarks.train.embeddings

The same batch of random ids is looked up, again and again; then its loss is differentiated too, and
Adagrad updates the table: with TensorFlow's own ops, and with the tables of
`embedding_config_spec` on the CPU, on an emulated TPU and on PJRT devices of the CPU. A lookup is
the read of one id's row; an update has the lookup, the gradient and the change of the row. All
cores share the same processor.

The lookups of the tables are those of an evaluation, and the updates those of a training. The
evaluation runs a session for each step, as the lookups with TensorFlow's own ops do, and a training
for each 20 steps.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import click
import numpy as np
import tensorflow as tf

import tpuserve
import trainer

v1 = tf.compat.v1
ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A table, and the ids of a batch.

    Attributes:
      vocabulary_size: number of rows of the table.
      dimension: number of columns.
      batch_size: number of examples.
      ids_per_example: number of ids of each example.
      seconds: the time to measure in each round.
    """

    vocabulary_size: int
    dimension: int
    batch_size: int
    ids_per_example: int
    seconds: float

    @property
    def ids_per_batch(self) -> int:
        """The number of ids of a batch."""
        return self.batch_size * self.ids_per_example

    def ids(self) -> Any:
        """Return the same random ids at each call, a SparseTensor."""
        shape = (self.batch_size, self.ids_per_example)
        ids = np.random.default_rng(1).integers(0, self.vocabulary_size, shape)
        indices = np.argwhere(np.ones(shape))
        return tf.SparseTensor(indices, ids.reshape(-1), shape)


def _loss(activations: Any) -> Any:
    return tf.reduce_mean(tf.reduce_sum(activations, 1) ** 2)


def _plain_rates(case: Case) -> Iterator[float]:
    """Yield lookups per second and updates per second of TensorFlow's own ops."""
    with tf.Graph().as_default():
        table = v1.get_variable("words", [case.vocabulary_size, case.dimension], use_resource=True)
        loss = _loss(tf.nn.embedding_lookup_sparse(table, case.ids(), None, combiner="mean"))
        update = v1.train.AdagradOptimizer(0.1).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for fetch in (loss.op, update):
                yield _runs_per_second(partial(session.run, fetch), case) * case.ids_per_batch


def _estimator_rates(case: Case, use_tpu: bool) -> tuple[float, float]:
    """Return lookups per second in an evaluation, and updates per second in a training."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = _loss(features["x"])
        if mode == trainer.ModeKeys.EVAL:
            return trainer.TPUEstimatorSpec(mode, loss=loss)
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params: Any) -> Any:
        return tf.data.Dataset.from_tensors({"x": case.ids()}).repeat()

    table = trainer.TableConfig(case.vocabulary_size, case.dimension)
    spec = trainer.EmbeddingConfigSpec(
        table_to_config_dict={"words": table},
        feature_to_config_dict={"x": trainer.FeatureConfig("words")},
        optimization_parameters=trainer.AdagradParameters(0.1),
    )
    updates, lookups = _TrainingTimer(ROUNDS * case.seconds), _Timer(ROUNDS * case.seconds)
    with tempfile.TemporaryDirectory() as model_dir:
        estimator = trainer.TPUEstimator(
            model_fn,
            config=trainer.RunConfig(trainer.TPUConfig(20), model_dir=model_dir),
            use_tpu=use_tpu,
            train_batch_size=case.batch_size,
            eval_batch_size=case.batch_size,
            embedding_config_spec=spec,
        )
        estimator.train(input_fn, hooks=[updates])
        estimator.evaluate(input_fn, hooks=[lookups])
    num_ids = case.ids_per_batch
    return lookups.steps_per_second * num_ids, updates.steps_per_second * num_ids


class _Timer(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Measures the steps per second after the first two runs of the session, and ends the run.

    Attributes:
      steps_per_second: the result.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._times: list[tuple[float, int]] = []
        self.steps_per_second = 0.0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._times.append((time.perf_counter(), self._count_steps(run_context)))
        (start, first), (now, last) = self._times[min(1, len(self._times) - 1)], self._times[-1]
        if now - start > self._seconds:
            self.steps_per_second = (last - first) / (now - start)
            run_context.request_stop()

    def _count_steps(self, run_context: Any) -> int:
        """Return the number of steps so far: one for each run of the session."""
        return len(self._times)


class _TrainingTimer(_Timer):
    """Measures a training, whose runs of the session have several steps."""

    def _count_steps(self, run_context: Any) -> int:
        return int(run_context.session.run(v1.train.get_global_step()))


def _runs_per_second(run: Callable[[], object], case: Case) -> float:
    """Return the median over the rounds of the runs per second."""
    run()
    rates = []
    for _ in range(ROUNDS):
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < case.seconds:
            run()
            count += 1
        rates.append(count / (time.perf_counter() - start))
    return float(np.median(rates))


@contextmanager
def _pjrt_devices() -> Iterator[None]:
    settings = {"TPUSERVE_TPU_RUNTIME": "pjrt", "TPUSERVE_PJRT_PLATFORM": "cpu"}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]


@click.command()
@click.option("--vocabulary-size", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--dimension", default=64, show_default=True, type=click.IntRange(1))
@click.option("--batch-size", default=512, show_default=True, type=click.IntRange(2))
@click.option("--ids-per-example", default=16, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.01))
def bench(**options: Any) -> None:
    """Print lookups and updates per second."""
    case = Case(**options)
    v1.logging.set_verbosity(v1.logging.ERROR)
    lookups, updates = _plain_rates(case)
    print(f"embedding_lookup_sparse     {lookups:>12,.0f} lookups/s")
    print(f"embedding_lookup_sparse     {updates:>12,.0f} updates/s")
    devices: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "off the TPU": nullcontext,
        "emulated, 1 core": partial(tpuserve.emulated_tpu, 1),
        "emulated, 2 cores": partial(tpuserve.emulated_tpu, 2),
        "PJRT, 2 devices": _pjrt_devices,
    }
    for name, device in devices.items():
        with device():
            rates = _estimator_rates(case, use_tpu=name != "off the TPU")
        for rate, plain, kind in zip(
            rates, (lookups, updates), ("lookups", "updates"), strict=True
        ):
            print(f"tables, {name:<19} {rate:>12,.0f} {kind}/s, {rate / plain:.2f} of the above")


if __name__ == "__main__":
    bench()
