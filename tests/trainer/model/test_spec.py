from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.saved_model import model_utils

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.model import spec_validation
from trainer.model.spec import EstimatorSpec, TPUEstimatorSpec, call_on_host

SCALAR = tf.constant(1.0)


@pytest.mark.parametrize(
    ("mode", "missing"),
    [("train", "loss and train_op"), ("eval", "loss"), ("infer", "predictions")],
)
def test_each_mode_names_its_missing_fields(mode: str, missing: str) -> None:
    with pytest.raises(InvalidSetting, match=f"Missing {missing} in the TPUEstimatorSpec"):
        TPUEstimatorSpec(mode)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="mode is 'fit'. Give one of train, eval, infer"):
        TPUEstimatorSpec("fit")


@pytest.mark.parametrize("pair", [len, (len,), (1, []), (len, 3), (len, [], 3)])
def test_eval_metrics_are_a_function_and_its_tensors(pair: Any) -> None:
    with pytest.raises(InvalidSetting, match="TPUEstimatorSpec eval_metrics"):
        TPUEstimatorSpec("eval", loss=SCALAR, eval_metrics=pair)


def test_hooks_must_be_session_run_hooks() -> None:
    with pytest.raises(InvalidSetting, match="training_hooks holds 'hook'"):
        TPUEstimatorSpec("train", loss=SCALAR, train_op=SCALAR, training_hooks=["hook"])
    hook = tf.compat.v1.train.SessionRunHook()
    assert TPUEstimatorSpec("train", loss=SCALAR, train_op=SCALAR, training_hooks=[hook])


def test_tensors_reach_a_host_function_by_position_or_by_name() -> None:
    def difference(a: int, b: int) -> int:
        return a - b

    assert call_on_host((difference, [5, 3])) == 2
    assert call_on_host((difference, {"b": 5, "a": 3})) == -2


@pytest.mark.parametrize("loss", [1.0, tf.constant([1.0, 2.0])], ids=["number", "vector"])
def test_a_loss_is_a_scalar_tensor(loss: Any) -> None:
    with pytest.raises(InvalidSetting, match="TPUEstimatorSpec loss .* Give a (scalar|Tensor)"):
        TPUEstimatorSpec("eval", loss=loss)


@pytest.mark.parametrize("kind", [EstimatorSpec, TPUEstimatorSpec])
def test_replace_changes_all_but_the_mode(kind: Any) -> None:
    spec = kind("eval", loss=SCALAR)
    assert spec._replace(loss=SCALAR * 2.0).loss == 2.0
    with pytest.raises(InvalidSetting, match="the mode .* cannot be changed"):
        spec._replace(mode="train")
    with pytest.raises(InvalidSetting, match="has no field lost"):
        spec._replace(lost=1)


def test_as_many_tensors_as_the_host_function_has_arguments() -> None:
    for count in (1, 3):
        with pytest.raises(InvalidSetting, match=f"{count} tensors for a function .*a, b"):
            TPUEstimatorSpec("eval", loss=SCALAR, eval_metrics=(lambda a, b: {}, [SCALAR] * count))
    assert TPUEstimatorSpec("eval", loss=SCALAR, eval_metrics=(lambda *a: {}, [SCALAR] * 3))
    assert TPUEstimatorSpec("eval", loss=SCALAR, eval_metrics=(lambda a, b=1: {}, [SCALAR]))


def test_a_tensor_of_another_graph_is_refused() -> None:
    with tf.Graph().as_default():
        loss = tf.constant(1.0)
    with (
        tf.Graph().as_default(),
        pytest.raises(InvalidSetting, match="loss, Const:0, belongs to another graph"),
    ):
        EstimatorSpec("eval", loss=loss)


def test_a_loss_of_one_element_becomes_a_scalar() -> None:
    assert EstimatorSpec("eval", loss=tf.constant([[3.0]])).loss.shape == []


@pytest.mark.parametrize(
    "parts",
    [
        {"train_op": 3},
        {"predictions": {"y": 3}},
        {"eval_metric_ops": [1]},
        {"eval_metric_ops": {"m": SCALAR}},
        {"training_chief_hooks": [3]},
        {"scaffold": 3},
    ],
    ids=lambda parts: next(iter(parts)),
)
def test_parts_of_wrong_types_are_type_errors(parts: Any) -> None:
    with pytest.raises(InvalidType, match=f"EstimatorSpec {next(iter(parts))}"):
        EstimatorSpec("eval", loss=SCALAR, **parts)


def test_one_export_output_is_the_default_too_and_of_several_one_has_to_be() -> None:
    output = model_utils.PredictOutput({"y": SCALAR})
    spec = EstimatorSpec("infer", predictions=SCALAR, export_outputs={"a": output})
    assert set(spec.export_outputs or ()) == {"a", "serving_default"}
    with pytest.raises(InvalidSetting, match="none of them are specified as the default"):
        TPUEstimatorSpec("infer", predictions=SCALAR, export_outputs={"a": output, "b": output})


def test_a_tpu_spec_is_an_estimator_spec_with_its_host_functions_called() -> None:
    with tf.Graph().as_default():
        loss = tf.constant(2.0)
        spec = TPUEstimatorSpec(
            "eval",
            loss=loss,
            eval_metrics=(lambda loss_rows: {"m": tf.compat.v1.metrics.mean(loss_rows)}, [loss]),
            host_call=(lambda loss_rows: loss_rows + 1.0, {"loss_rows": loss}),
            scaffold_fn=tf.compat.v1.train.Scaffold,
        ).as_estimator_spec()
    assert list(spec.eval_metric_ops or ()) == ["m"]
    assert isinstance(spec.scaffold, tf.compat.v1.train.Scaffold)
    assert len(spec.evaluation_hooks or ()) == len(spec.training_hooks or ()) == 1


def test_hooks_that_are_not_a_list_are_refused() -> None:
    with pytest.raises(InvalidType, match=r"train\(\) hooks is 40\. Give a list .* steps="):
        spec_validation.validate_hooks("train() hooks", 40)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [EstimatorSpec, TPUEstimatorSpec])
def test_empty_export_outputs_are_refused(kind: Any) -> None:
    with pytest.raises(InvalidSetting, match="export_outputs is empty, so no signature would be"):
        kind("infer", predictions=SCALAR, export_outputs={})


@pytest.mark.parametrize("field", ["eval_metrics", "host_call"])
def test_a_dict_in_place_of_a_function_and_its_tensors_is_named(field: str) -> None:
    metrics: Any = {"accuracy": (tf.constant(1.0), tf.no_op())}
    with pytest.raises(InvalidSetting, match=f"{field} is a dict.* Give a pair"):
        TPUEstimatorSpec("eval", loss=SCALAR, **{field: metrics})


@pytest.mark.parametrize("mode", ["train", "eval", "infer"])
def test_a_spec_has_a_scaffold_in_every_mode(mode: str) -> None:
    with tf.Graph().as_default():
        y = tf.constant(1.0)
        spec = EstimatorSpec(mode, predictions=y, loss=y, train_op=y.op)
        spec.scaffold.finalize()
        assert spec.scaffold.summary_op is None


def test_a_keras_metric_of_a_spec_is_a_value_and_its_update() -> None:
    import tf_keras

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        metric = tf_keras.metrics.Mean()
        metric.update_state([2.0, 4.0])
        spec = EstimatorSpec("eval", loss=tf.constant(0.0), eval_metric_ops={"mean": metric})
        value, update = (spec.eval_metric_ops or {})["mean"]
        for collection in ("local_variables", "metric_variables"):
            found = tf.compat.v1.get_collection(collection)
            assert [id(variable) for variable in found] == list(map(id, metric.variables))
        session.run(tf.compat.v1.local_variables_initializer())
        session.run(update)
        assert session.run(value) == 3.0
