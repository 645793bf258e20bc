"""Behaviour observed in TensorFlow 1.15's tf.contrib, except for its layers."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import crf, framework, lookup, losses, metrics, opt, seq2seq, slim
from trainer.compat.contrib.training import HParams

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def _run_fetches(fetches: Any, feed: Any = None) -> Any:
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        return session.run(fetches, feed)


@pytest.mark.parametrize(
    ("options", "expected"),
    # In these tests every element has the loss ln 2, and the weights are 1, 1, 0 and 1, 0.5, 1.
    [
        ({}, 1.0),
        ({"average_across_batch": False}, [1, 1]),
        (
            {"average_across_batch": False, "average_across_timesteps": False},
            [[1, 1, 0], [1, 0.5, 1]],
        ),
        (
            {
                "average_across_batch": False,
                "average_across_timesteps": False,
                "sum_over_batch": True,
                "sum_over_timesteps": True,
            },
            4.5 / 5,
        ),
        (
            {
                "average_across_batch": False,
                "average_across_timesteps": False,
                "sum_over_timesteps": True,
            },
            [2 / 2, 2.5 / 3],
        ),
    ],
)
@pytest.mark.numeric
def test_losses_of_sequences_are_averaged_or_summed(options: Any, expected: Any) -> None:
    weights = tf.constant([[1.0, 1.0, 0.0], [1.0, 0.5, 1.0]])
    targets = tf.ones([2, 3], tf.int32)
    loss = seq2seq.sequence_loss(tf.zeros([2, 3, 2]), targets, weights, **options)
    np.testing.assert_allclose(_run_fetches(loss), np.multiply(expected, math.log(2)), rtol=1e-6)


def test_a_sequence_without_weights_has_no_loss_and_mixed_reductions_are_refused() -> None:
    logits, targets = tf.zeros([1, 2, 2]), tf.ones([1, 2], tf.int32)
    assert _run_fetches(seq2seq.sequence_loss(logits, targets, tf.zeros([1, 2]))) == 0.0
    with pytest.raises(InvalidSetting, match="got both average_across"):
        seq2seq.sequence_loss(logits, targets, tf.ones([1, 2]), sum_over_batch=True)


@pytest.mark.numeric
def test_losses_accept_weights_of_examples() -> None:
    x, y = tf.constant([[0.3, 0.6], [0.9, 0.2]]), tf.constant([[0.0, 1.0], [1.0, 1.0]])
    weights, column = tf.constant([1.0, 2.0]), tf.constant([[1], [0]])
    values = [
        losses.mean_squared_error(x, y, weights),
        losses.absolute_difference(x, y, tf.constant([1.0, 0.0])),
        losses.sparse_softmax_cross_entropy(x, column, weights),
        losses.compute_weighted_loss(x, weights),
    ]
    # The weighted sums are (0.09 + 0.16) + 2 (0.01 + 0.64), divided by 4 weights that are not 0;
    # 0.3 + 0.4, divided by 2; and 0.9 + 2 * 1.1, divided by 4.
    np.testing.assert_allclose(_run_fetches(values), [0.3875, 0.35, 0.6803637, 0.775], rtol=1e-6)


@pytest.mark.numeric
def test_hinge_losses_are_neither_reduced_nor_collected() -> None:
    x, y = tf.constant([[0.3, 0.6], [0.9, 0.2]]), tf.constant([[0.0, 1.0], [1.0, 1.0]])
    hinge_losses = losses.hinge_loss(x, y)
    np.testing.assert_allclose(_run_fetches(hinge_losses), [[1.3, 0.4], [0.1, 0.8]], rtol=1e-6)
    assert losses.get_losses() == []


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.numeric
def test_momentum_of_lars_includes_the_learning_rate_of_each_step(nesterov: bool) -> None:
    # "bias" is in skip_list, so there is no trust coefficient. With g = 2 and the rates 0.5 and
    # 0.25, m is 0.5 g, then 0.9 m + 0.25 g.
    b = v1.get_variable("bias", initializer=10.0)
    step = v1.train.create_global_step()
    rate = v1.train.exponential_decay(0.5, step, 1, 0.5)
    optimizer = opt.LARSOptimizer(rate, 0.9, skip_list=["bias"], use_nesterov=nesterov)
    train = optimizer.minimize(b * 2.0, global_step=step)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        values = []
        for _ in range(2):
            session.run(train)
            values.append(session.run([optimizer.get_slot(b, "momentum"), b]))
    changes = [1.0, 1.4] if not nesterov else [1.0 + 0.9, 0.5 + 0.9 * 1.4]
    expected = [[1.0, 10 - changes[0]], [1.4, 10 - sum(changes)]]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.numeric
def test_f1_uses_the_best_threshold_over_all_batches() -> None:
    p, y = v1.placeholder(tf.float32, [None]), v1.placeholder(tf.int64, [None])
    value, update = metrics.f1_score(y, p)
    with v1.Session() as session:
        session.run(v1.local_variables_initializer())
        # Thresholds between 0.1 and 0.4 are best: 2 true positives, 1 false positive and no false
        # negative give F1 = 4 / 5.
        first = session.run(update, {p: [0.1, 0.8, 0.4, 0.6], y: [0, 1, 1, 0]})
        session.run(update, {p: [0.9, 0.3, 0.35], y: [1, 0, 1]})
        np.testing.assert_allclose([first, session.run(value)], [0.8, 8 / 9], rtol=1e-6)


@pytest.mark.numeric
def test_streaming_metrics_take_predictions_first() -> None:
    p, y = tf.constant([0.9, 0.8, 0.1]), tf.constant([True, False, True])
    updates = [
        metrics.streaming_false_positives(p > 0.5, y)[1],
        metrics.streaming_precision_at_thresholds(p, y, [0.85])[1],
        metrics.streaming_recall_at_thresholds(p, y, [0.85])[1],
        metrics.streaming_percentage_less(p, 0.5)[1],
        metrics.streaming_sparse_precision_at_k(
            tf.constant([[0.1, 0.9]]), tf.constant([[1]], tf.int64), 1
        )[1],
    ]
    values = [np.ravel(value)[0] for value in _run_fetches(updates)]
    np.testing.assert_allclose(values, [1, 1, 0.5, 1 / 3, 1], rtol=1e-5)


def test_a_suffix_may_be_part_of_a_name_component() -> None:
    for scope, name in (("a", "w"), ("b", "ww")):
        with v1.variable_scope(scope):
            framework.variable(name, [])
    variables = framework.get_variables_by_suffix("w")
    assert [variable.op.name for variable in variables] == ["a/w", "b/ww"]
    assert [variable.op.name for variable in framework.get_variables_by_name("w")] == ["a/w"]
    assert framework.get_variable_full_name(variables[1]) == "b/ww"


def test_checkpoint_functions_accept_the_arguments_of_contrib(tmp_path: Path) -> None:
    w = v1.get_variable("w", initializer=[1.0, 2.0])
    with v1.Session() as session:
        session.run(w.initializer)
        v1.train.Saver([w]).save(session, str(tmp_path / "model"))
    directory = str(tmp_path)
    assert framework.list_variables(checkpoint_dir=directory) == [("w", [2])]
    assert framework.load_variable(checkpoint_dir=directory, name="w").tolist() == [1, 2]
    assert framework.load_checkpoint(filepattern=directory).has_tensor("w")
    other = v1.get_variable("other", [2])
    framework.init_from_checkpoint(checkpoint_dir=directory, assignment_map={"w": other})
    assert _run_fetches(other).tolist() == [1, 2]
    cleared = framework.zero_initializer(w)
    with v1.Session() as session:
        session.run(cleared)
        assert session.run(w).tolist() == [0, 0]


def test_predictions_precede_labels_and_scalars_are_checked() -> None:
    predictions, labels = framework.remove_squeezable_dimensions(tf.ones([2, 1]), tf.zeros([2]))
    assert _run_fetches([predictions, labels])[0].tolist() == [1, 1]
    with pytest.raises(InvalidSetting, match=r"rate Const\S* has shape \(2,\)"):
        framework.assert_scalar(tf.constant([1, 2]), message="rate")


@pytest.mark.numeric
def test_slims_train_op_multiplies_then_clips_each_gradient() -> None:
    w = v1.get_variable("w", initializer=[3.0, 4.0])
    train = slim.learning.create_train_op(
        tf.reduce_sum(w * w) / 2,
        v1.train.GradientDescentOptimizer(0.5),
        clip_gradient_norm=1.0,
        summarize_gradients=True,
        gradient_multipliers={"w": 0.1},
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        # The multiplier is 0.1; a tenth of the gradient has the norm 0.5.
        assert session.run(train) == 12.5
        np.testing.assert_allclose(session.run(w), [2.85, 3.8], rtol=1e-6)
    assert train.op.name == "train_op/control_dependency"
    summaries = {summary.op.name for summary in v1.get_collection(v1.GraphKeys.SUMMARIES)}
    assert summaries == {"summarize_grads/w_gradient", "summarize_grads/w_gradient_norm"}


def test_a_table_is_filled_by_its_init() -> None:
    filler = lookup.KeyValueTensorInitializer(["a"], tf.constant([5], tf.int64))
    table = lookup.HashTable(filler, -1)
    with v1.Session() as session:
        session.run(table.init)
        assert session.run(table.lookup(tf.constant(["a", "b"]))).tolist() == [5, -1]


def test_a_sequence_of_no_steps_is_decoded_as_its_first_step() -> None:
    potentials = tf.constant([[[1.0, 2.0], [9.0, 0.0]]])
    tags, score = crf.crf_decode(potentials, tf.zeros([2, 2]), tf.constant([0]))
    decoded = _run_fetches([tags, score])
    assert [array.tolist() for array in decoded] == [[[1, 0]], [2.0]]


def test_hyperparameters_are_formatted_in_order() -> None:
    hparams = HParams(rate=0.1, sizes=[8, 4], name="adam")
    assert str(hparams) == "rate=0.1,sizes=[8, 4],name=adam"
    assert repr(hparams) == "HParams([('name', 'adam'), ('rate', 0.1), ('sizes', [8, 4])])"
    assert hparams.set_from_map({"rate": 3}).rate == 3.0
    for name, value in (("rate", None), ("sizes", [1, None])):
        with pytest.raises(InvalidSetting, match="cannot be None"):
            hparams.set_hparam(name, value)
