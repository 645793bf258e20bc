import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import processes
from tests.trainer import programs

PROGRAMS = Path(__file__).parents[1] / "trainer/compat/programs"
STEPS = 40


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write TFRecord files of images with a bright band; the band's position is the label."""
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(128):
            label = number % 10
            image = np.zeros([28, 28], np.uint8)
            image[2 * label : 2 * label + 4] = 255
            features = tf.train.Features(
                feature={
                    "image_raw": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[image.tobytes()])
                    ),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
            )
            writer.write(tf.train.Example(features=features).SerializeToString())
    return path


@pytest.mark.parametrize("options", [[], ["--emulate-tpu", "8"]], ids=["cpu", "tpu"])
@pytest.mark.parametrize(
    "name", ["mnist.py", pytest.param("mnist_one_shot.py", marks=pytest.mark.slow)]
)
def test_documented_program_trains_unchanged(
    name: str, options: list[str], records: Path, tmp_path: Path
) -> None:
    flags = [f"--train_file={records}", f"--model_dir={tmp_path}", f"--train_steps={STEPS}"]
    # 2 rows on each core.
    flags += [f"--use_tpu={bool(options)}", "--batch_size=16"]
    process = processes.run_tpuserve("run", *options, str(PROGRAMS / name), *flags)
    assert process.returncode == 0, process.stderr[-4000:]
    assert programs.variable(tmp_path, "global_step") == STEPS
    [last] = re.findall(rf"trainer:loss = ([\d.]+), step = {STEPS} of {STEPS} ", process.stderr)
    # Untrained weights give a loss of log 10, which is 2.30.
    assert float(last) < 1.8
