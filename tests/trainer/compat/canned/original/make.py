"""Writes v1/ and v2/ with the two DNNLinearCombinedClassifiers of TensorFlow 2.15.

    $ python -m benchmarks.train --only=start --rounds=1    # creates .venv-original
    $ .venv-original/bin/python -m tests.trainer.compat.canned.original.make

Each has the checkpoint of step 5, and facts.json: what TensorFlow 2.15 computes from it. v2/ has an
export of it too.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.trainer.compat.canned.original import model

STEPS = 5
CONTINUED_STEPS = 3


def make(version: Any, directory: Path) -> Any:
    """Write the checkpoint and the facts of a class; return its estimator.

    Args:
      version: tf.compat.v1, or tf.
      directory: the folder to write.
    """

    def create(model_dir: str) -> Any:
        # The predictions of the first two rows are of different classes with this seed.
        config = tf.estimator.RunConfig(
            model_dir, tf_random_seed=9, save_summary_steps=1, keep_checkpoint_max=1
        )
        return version.estimator.DNNLinearCombinedClassifier(**model.arguments(), config=config)

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    estimator = create(tempfile.mkdtemp())
    estimator.train(lambda: model.dataset().repeat(), steps=STEPS)
    shutil.copy(Path(estimator.model_dir, "checkpoint"), directory)
    for path in Path(estimator.model_dir).glob(f"model.ckpt-{STEPS}.[di]*"):
        shutil.copy(path, directory)

    continued = create(shutil.copytree(directory, tempfile.mkdtemp(), dirs_exist_ok=True))
    continued.train(lambda: model.dataset().repeat(), steps=CONTINUED_STEPS)
    facts = {
        "metrics": estimator.evaluate(model.dataset),
        "predictions": list(estimator.predict(model.dataset))[:2],
        "losses": losses(Path(continued.model_dir)),
    }
    text = json.dumps(facts, indent=1, default=as_json)
    (directory / "facts.json").write_text(text + "\n")
    return estimator


def export(estimator: Any, directory: Path) -> None:
    """Write an export that parses tf.Examples."""
    arguments = model.arguments()
    columns = [*arguments["linear_feature_columns"], *arguments["dnn_feature_columns"]]
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(
        tf.feature_column.make_parse_example_spec(columns)
    )
    exported = estimator.export_saved_model(tempfile.mkdtemp(), receiver)
    shutil.copytree(exported.decode(), directory)


def losses(model_dir: Path) -> list[float]:
    """Return the losses in the event file, one a step."""
    (path,) = model_dir.glob("events.out.tfevents.*")
    return [
        value.simple_value
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    ]


def as_json(value: Any) -> Any:
    """Return the numbers of a NumPy value, or the text of bytes."""
    return value.decode() if isinstance(value, bytes) else value.tolist()


if __name__ == "__main__":
    make(tf.compat.v1, model.DIRECTORY / "v1")
    export(make(tf, model.DIRECTORY / "v2"), model.DIRECTORY / "v2" / "export")
