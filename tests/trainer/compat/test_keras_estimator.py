from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tpuserve
import trainer
from tests.trainer import exports
from tests.trainer.compat import program_runner
from tpuserve.errors import InvalidSetting
from trainer.compat.keras_estimator import model_to_estimator


def compiled_model() -> tf_keras.Model:
    """Return the compiled model y = w x with w = 2."""
    start = tf_keras.initializers.Constant(2.0)
    dense = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer=start, input_shape=(1,))
    model = tf_keras.Sequential([dense])
    model.compile("sgd", "mse")
    return model


def ones_dataset() -> tf.data.Dataset:
    batch = np.ones([4, 1], np.float32)
    return tf.data.Dataset.from_tensors((batch, batch))


def test_estimator_starts_from_the_weights_of_the_model(tmp_path: Path) -> None:
    estimator = model_to_estimator(compiled_model(), model_dir=str(tmp_path))
    assert isinstance(estimator, trainer.Estimator)
    assert estimator.evaluate(ones_dataset)["loss"] == 1.0


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_estimator_converts_to_a_tpu_estimator(tmp_path: Path) -> None:
    model = compiled_model()
    estimator = model_to_estimator(model, model_dir=str(tmp_path))
    on_tpu = trainer.to_tpu_estimator(estimator, train_batch_size=4)
    with tpuserve.emulated_tpu(cores=4):
        on_tpu.train(lambda params: ones_dataset().repeat(), steps=1)
    # The loss is (w - 1)^2, its gradient is 2. With a learning rate of 0.01, w becomes 1.98.
    assert trainer.to_keras(on_tpu).get_weights()[0] == pytest.approx(1.98)
    assert estimator.evaluate(ones_dataset)["loss"] == pytest.approx(0.98**2)


def test_model_that_a_tpu_cannot_train_is_refused(tmp_path: Path) -> None:
    model = compiled_model()
    model.compile(tf_keras.optimizers.legacy.Adam(amsgrad=True), "mse")
    estimator = model_to_estimator(model, model_dir=str(tmp_path))
    with pytest.raises(InvalidSetting, match="amsgrad"):
        trainer.to_tpu_estimator(estimator, train_batch_size=4)
    with pytest.raises(InvalidSetting, match="Give the global batch size"):
        trainer.to_tpu_estimator(estimator)


def test_hooks_are_called_after_each_step(tmp_path: Path) -> None:
    calls = []

    class Count(tf.compat.v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            calls.append(run_values)

    model_to_estimator(compiled_model(), model_dir=str(tmp_path)).train(
        lambda: ones_dataset().repeat(), steps=3, hooks=[Count()]
    )
    assert len(calls) == 3


def two_output_model() -> tf_keras.Model:
    """Return a compiled model with the outputs y = 2 x and z = 2 x."""
    x = tf_keras.Input((1,), name="x")
    start = tf_keras.initializers.Constant(2.0)
    heads = [tf_keras.layers.Dense(1, kernel_initializer=start, name=name) for name in "yz"]
    model = tf_keras.Model(x, [head(x) for head in heads])
    model.compile("sgd", "mse", metrics={"y": ["mae", "mse"], "z": "mae"})
    return model


def two_label_dataset() -> tf.data.Dataset:
    batch = np.ones([4, 1], np.float32)
    return tf.data.Dataset.from_tensors((batch, (batch, 3 * batch)))


def test_metrics_have_the_names_in_metric_names_map(tmp_path: Path) -> None:
    names = {"y_mae": "Y", "y_mse": "SQUARES", "z_mae": "Z"}
    estimator = model_to_estimator(
        two_output_model(), model_dir=str(tmp_path), metric_names_map=names
    )
    results = estimator.evaluate(two_label_dataset)
    assert {name: results[name] for name in names.values()} == {"Y": 1, "SQUARES": 1, "Z": 1}
    assert not set(names) & set(results)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"y_mae": "Y", "y_mse": "S"}, "z_mae is missing"),
        ({"y_mae": "Y", "y_mse": "S", "z_mae": "Z", "loss": "L"}, "loss is not a metric"),
    ],
)
def test_wrong_metric_name_is_refused_before_training(
    names: dict[str, str], message: str, tmp_path: Path
) -> None:
    estimator = model_to_estimator(
        two_output_model(), model_dir=str(tmp_path), metric_names_map=names
    )
    with pytest.raises(InvalidSetting, match=f"the metrics y_mae, y_mse, z_mae: {message}. Name"):
        estimator.train(two_label_dataset)
    assert estimator.get_variable_value("global_step") == 0


def _answer(directory: bytes, signature: str, **inputs: Any) -> dict[str, Any]:
    """Load an export as a program of TensorFlow 2 does, without tags, and call a signature."""
    signatures = tf.saved_model.load(directory.decode()).signatures
    results = signatures[signature](**{name: tf.constant(x) for name, x in inputs.items()})
    return {name: result.numpy().tolist() for name, result in results.items()}


def test_export_has_a_signature_for_an_output_and_loads_without_tags(tmp_path: Path) -> None:
    estimator: Any = model_to_estimator(
        two_output_model(),
        model_dir=str(tmp_path / "run"),
        export_outputs={"y": trainer.export.PredictOutput},
    )
    path = estimator.export_saved_model(str(tmp_path / "export"))
    assert _answer(path, "y", x=[[3.0]]) == {"output": [[6.0]]}
    assert _answer(path, "serving_default", x=[[3.0]]) == {"y": [[6.0]], "z": [[6.0]]}


def test_export_has_a_regression_signature_for_an_output(tmp_path: Path) -> None:
    estimator: Any = model_to_estimator(
        two_output_model(),
        model_dir=str(tmp_path / "run"),
        export_outputs={"z": trainer.export.RegressionOutput},
    )
    spec = {"x": tf.io.FixedLenFeature([1], tf.float32)}
    receiver = trainer.build_parsing_serving_input_receiver_fn(spec)
    path = estimator.export_saved_model(str(tmp_path / "export"), receiver)
    examples = program_runner.make_example_inputs({"x": [3.0]})["examples"]
    assert _answer(path, "z", inputs=examples) == {"outputs": [[6.0]]}


def test_both_metagraphs_are_exported_where_they_are_asked_for(tmp_path: Path) -> None:
    estimator: Any = model_to_estimator(two_output_model(), model_dir=str(tmp_path / "run"))
    on_tpu = trainer.to_tpu_estimator(estimator, train_batch_size=4)
    path = Path(cast(Any, on_tpu).export_saved_model(str(tmp_path / "export")).decode())
    x = {"x": np.array([[3.0]], np.float32)}
    assert exports.answers(path, x) == {"y": [[6.0]], "z": [[6.0]]}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"checkpoint_format": "h5"}, "checkpoint_format is 'h5'"),
        ({"metric_names_map": {"y_mae": "loss"}}, "is 'loss', which is already a key"),
        ({"metric_names_map": ["y_mae"]}, "metric_names_map must be a dict"),
        ({"export_outputs": ["y"]}, "export_outputs must be a dict"),
        ({"export_outputs": {"y": "mean"}}, "export_outputs\\['y'\\] must be a class .*got 'mean'"),
        ({"export_outputs": {"serving_default": dict}}, "serving_default is not an output"),
    ],
)
def test_invalid_arguments_are_refused(
    option: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        model_to_estimator(two_output_model(), model_dir=str(tmp_path), **option)


def test_features_may_contain_sample_weights(tmp_path: Path) -> None:
    def weighted_dataset() -> tf.data.Dataset:
        features = {"features": [[1.0], [1.0]], "sample_weights": [1.0, 3.0]}
        return tf.data.Dataset.from_tensors((features, [[1.0], [2.0]]))

    estimator = model_to_estimator(compiled_model(), model_dir=str(tmp_path))
    # The first row has an error of 1 and a weight of 1; the second row has no error.
    assert estimator.evaluate(weighted_dataset)["loss"] == 0.5
