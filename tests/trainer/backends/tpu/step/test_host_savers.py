from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.trainer.backends.tpu import slope
from tests.trainer.programs import variable

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

v1 = tf.compat.v1


@pytest.mark.on_pjrt_too
def test_a_saver_of_model_fn_saves_on_the_host(tmp_path: Path) -> None:
    def with_saver(mode: str, **step_values: Any) -> dict[str, Any]:
        saver = v1.train.Saver(max_to_keep=1)
        v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
        hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=2, saver=saver)
        return {"training_hooks": [hook]}

    with slope.tpu(2):
        slope.estimator(tmp_path, with_saver).train(slope.ones(), max_steps=4)
    assert variable(tmp_path, "w") == pytest.approx(1 - 0.5**4)
    # The saver of model_fn keeps one checkpoint; an estimator's own saver would keep five.
    assert [path.name for path in tmp_path.glob("*.index")] == ["model.ckpt-4.index"]
