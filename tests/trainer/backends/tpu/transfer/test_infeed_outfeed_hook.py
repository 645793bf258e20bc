"""InfeedOutfeedHook: the threads that feed an emulated TPU and receive its results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from trainer.backends.tpu.transfer.infeed_outfeed_hook import InfeedOutfeedHook


@pytest.fixture(autouse=True)
def _two_cores() -> Iterator[None]:
    with tpuserve.emulated_tpu(cores=2, compiled=False):
        yield


def estimator(model_dir: Path, model_fn: Any = programs.slope_model_fn, **settings: Any) -> Any:
    settings = {"iterations_per_loop": 4, **settings}
    return trainer.TPUEstimator(
        model_fn,
        config=trainer.RunConfig(trainer.TPUConfig(**settings), model_dir=str(model_dir)),
        params={"rate": 0.5},
        train_batch_size=2,
        eval_batch_size=2,
        predict_batch_size=2,
    )


class LoopSizeHook(InfeedOutfeedHook):
    """Records the number of steps of each loop that is announced to the hook."""

    loop_sizes: list[int]

    def send_next_batch_signal(self, iterations: int) -> None:
        self.loop_sizes.append(iterations)
        super().send_next_batch_signal(iterations)


def test_a_feed_hook_of_the_user_replaces_the_default(tmp_path: Path) -> None:
    LoopSizeHook.loop_sizes = []
    model = estimator(tmp_path, experimental_feed_hook=LoopSizeHook)
    model.train(programs.ones(), steps=10)
    assert LoopSizeHook.loop_sizes == [4, 4, 2]
    assert programs.variable(tmp_path, "w") == 1 - 0.5**10


def test_a_delayed_first_batch_is_fed(tmp_path: Path) -> None:
    estimator(tmp_path, initial_infeed_sleep_secs=1).train(programs.ones(), steps=5)
    assert programs.variable(tmp_path, "global_step") == 5


@pytest.mark.parametrize("batches", [1, 4, 6, 9])
def test_the_results_of_every_step_are_received_when_the_input_ends(
    tmp_path: Path, batches: int
) -> None:
    values: list[float] = []

    def see(x: Any) -> Any:
        values.extend(x.numpy().tolist())
        return x

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        rows = tf.reshape(features["x"], [-1])
        call = (lambda x: tf.py_function(see, [x], tf.float32)), [rows]
        return spec._replace(host_call=call)

    estimator(tmp_path, model_fn).train(programs.ones(batches), steps=None)
    assert programs.variable(tmp_path, "global_step") == batches
    assert values == [1.0] * 2 * batches
