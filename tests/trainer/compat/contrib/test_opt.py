"""The formula of each optimizer of tf.contrib.opt, computed by hand, for both variable kinds."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting, WrongContext
from trainer.compat.contrib import opt

v1 = tf.compat.v1

# The gradient in the tests, and its running mean after one and two steps from 0 with β = 0.9.
G = np.array([0.5, -2.0])
M = (0.1 * G, 0.19 * G)


def _steps(
    make: Callable[[], Any], resource: bool, start: Any = (3.0, 4.0), gradient: Any = G
) -> list[Any]:
    """Return a variable's values after each of two steps with a constant gradient."""
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=tf.constant(start), use_resource=resource)
        step = v1.train.create_global_step()
        pairs = [(tf.constant(gradient, tf.float32), w)]
        train = make().apply_gradients(pairs, global_step=step)
        session.run(v1.global_variables_initializer())
        values = []
        for _ in range(2):
            session.run(train)
            values.append(session.run(w))
        return values


def _adam(second: float = 1.0) -> list[Any]:
    # The gradient is constant, so the corrected moments are m̂ = G and v̂ = G² in every step, and w
    # changes by the sign of G times the learning rate.
    return [-0.1 * np.sign(G), -0.2 * np.sign(G) * second]


def _nadam() -> list[Any]:
    first = 0.1 / 0.1 * (0.9 * M[0] + 0.1 * G) / np.abs(G)
    second = 0.1 / 0.19 * (0.9 * M[1] + 0.1 * G) / np.abs(G)
    return [-first, -first - second]


def _lars(nesterov: bool) -> list[Any]:
    # |w| = 5, |g| = 2.0616; decay 0.1, trust 0.5 |w| / (|g| + 0.1 |w|), rate 0.1, momentum 0.9.
    w: np.ndarray[Any, Any] = np.array([3.0, 4.0])
    m: np.ndarray[Any, Any] = np.zeros(2)
    changes = []
    for _ in range(2):
        norm = np.linalg.norm(w)
        rate = 0.1 * 0.5 * norm / (np.linalg.norm(G) + 0.1 * norm)
        scaled_gradient = rate * (G + 0.1 * w)
        m = 0.9 * m + scaled_gradient
        w = w - (scaled_gradient + 0.9 * m if nesterov else m)
        changes.append(w - [3.0, 4.0])
    return changes


def _list_decayed_changes(*moves: Any) -> list[Any]:
    """Return how far w is from its start (3, 4) after each step: w ← 0.9 w + move."""
    w = np.array([3.0, 4.0])
    changes = []
    for move in moves:
        w = w * 0.9 + move
        changes.append(w - [3.0, 4.0])
    return changes


_SGDW = opt.extend_with_decoupled_weight_decay(v1.train.GradientDescentOptimizer)
_SIGN = np.sign(G)

RULES: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "Nadam": (lambda: opt.NadamOptimizer(0.1), _nadam()),
    # AdaMax with a constant gradient: v = |G| and m̂ = G in every step.
    "AdaMax": (lambda: opt.AdaMaxOptimizer(0.1), _adam()),
    "LazyAdam": (lambda: opt.LazyAdamOptimizer(0.1), _adam()),
    # sign(g) sign(m) = 1, so PowerSign multiplies the gradient by e, and AddSign by 1 + 1.
    "PowerSign": (lambda: opt.PowerSignOptimizer(0.1), [-0.1 * math.e * G, -0.2 * math.e * G]),
    "AddSign": (lambda: opt.AddSignOptimizer(0.1), [-0.2 * G, -0.4 * G]),
    # The decay falls linearly from 1 to 0 in 4 steps: it is 1 and then 3/4.
    "AddSign, decaying": (
        lambda: opt.AddSignOptimizer(0.1, sign_decay_fn=opt.get_linear_decay_fn(4)),
        [-0.2 * G, -0.375 * G],
    ),
    # The decay is (1 + cos(π step / 4)) / 2.
    "PowerSign, decaying": (
        lambda: opt.PowerSignOptimizer(0.1, sign_decay_fn=opt.get_cosine_decay_fn(4)),
        [-0.1 * math.e * G, -0.1 * (math.e + math.exp((1 + math.sqrt(0.5)) / 2)) * G],
    ),
    "LARS": (lambda: opt.LARSOptimizer(0.1, 0.9, 0.1, 0.5), _lars(False)),
    "LARS, Nesterov": (
        lambda: opt.LARSOptimizer(0.1, 0.9, 0.1, 0.5, use_nesterov=True),
        _lars(True),
    ),
    # LARS updates a variable in its skip_list by plain momentum: m is G, then 1.9 G.
    "LARS, skipped": (
        lambda: opt.LARSOptimizer(0.1, 0.9, 0.1, 0.5, skip_list=["w"]),
        [-0.1 * G, -0.29 * G],
    ),
    "SGDW": (lambda: _SGDW(0.1, 0.1), _list_decayed_changes(-0.1 * G, -0.1 * G)),
    "MomentumW": (
        lambda: opt.MomentumWOptimizer(0.1, 0.1, 0.9),
        _list_decayed_changes(-0.1 * G, -0.19 * G),
    ),
    "AdamW": (
        lambda: opt.AdamWOptimizer(0.1, 0.1),
        _list_decayed_changes(-0.1 * _SIGN, -0.1 * _SIGN),
    ),
}


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.numeric
def test_two_steps_follow_the_formula_of_the_paper(name: str, resource: bool) -> None:
    make, moves = RULES[name]
    values = _steps(make, resource)
    np.testing.assert_allclose(values, np.add(moves, [3.0, 4.0]), rtol=2e-5)


@pytest.mark.parametrize("decay", [opt.get_linear_decay_fn(4), opt.get_cosine_decay_fn(4)])
def test_a_sign_decay_needs_the_global_step(decay: Callable[[Any], Any]) -> None:
    with tf.Graph().as_default():
        loss = v1.get_variable("w", initializer=1.0) * 2.0
        with pytest.raises(InvalidSetting, match=r"global_step is None. Give minimize"):
            opt.AddSignOptimizer(sign_decay_fn=decay).minimize(loss)
        # As in TensorFlow 1, another function gets None, and may ignore it.
        opt.AddSignOptimizer(sign_decay_fn=lambda step: 0.5).minimize(loss)


@pytest.mark.numeric
def test_lars_does_not_scale_the_rate_if_a_norm_is_zero() -> None:
    values = _steps(lambda: opt.LARSOptimizer(0.1, 0.9), True, start=(0.0, 0.0))
    np.testing.assert_allclose(values[0], -0.1 * G, rtol=1e-5)
    unchanged = _steps(lambda: opt.LARSOptimizer(0.1, 0.9, 0.0), True, gradient=np.zeros(2))
    np.testing.assert_allclose(unchanged, [[3.0, 4.0]] * 2)


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize(
    ("make", "is_lazy"),
    [
        (opt.LazyAdamOptimizer, True),
        (opt.AdaMaxOptimizer, True),
        (opt.NadamOptimizer, False),
    ],
)
def test_lazy_adam_and_adamax_update_only_rows_with_a_gradient(
    make: Callable[..., Any], is_lazy: bool, resource: bool
) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=tf.constant([[3.0], [4.0]]), use_resource=resource)
        row = v1.placeholder(tf.int32, [None])
        train = make(0.1).minimize(tf.reduce_sum(tf.gather(w, row)))
        session.run(v1.global_variables_initializer())
        session.run(train, {row: [0, 0]})
        before = session.run(w)
        session.run(train, {row: [1]})
        after = session.run(w)
    assert (after[0] == before[0]) == is_lazy
    assert (before[1], after[1] < 4.0) == (4.0, True)


def test_only_listed_variables_and_rows_with_a_gradient_decay() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w, b = (v1.get_variable(name, initializer=tf.ones([2, 1])) for name in "wb")
        loss = tf.reduce_sum(tf.gather(w, [1])) * 0.0 + tf.reduce_sum(b) * 0.0
        train = opt.AdamWOptimizer(0.5, 0.1).minimize(loss, decay_var_list=[w])
        session.run(v1.global_variables_initializer())
        session.run(train)
        values = session.run([w, b])
    assert [value.ravel().tolist() for value in values] == [[1.0, 0.5], [1.0, 1.0]]


def test_averages_are_saved_under_the_names_of_their_variables(tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=4.0)
        optimizer = opt.MovingAverageOptimizer(v1.train.GradientDescentOptimizer(1.0), 0.75)
        with pytest.raises(WrongContext, match="Call minimize"):
            optimizer.swapping_saver()
        train = optimizer.minimize(w * 2.0)
        saver = optimizer.swapping_saver()
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        saver.save(session, path)
        # w is 4, 2, 0 before and after two steps; its average is 4, 3.5, 2.625.
        assert session.run(w) == 0.0
        session.run(w.assign(9.0))
        saver.restore(session, path)
        assert session.run(w) == 0.0
    saved = tf.train.load_checkpoint(path)
    assert saved.get_tensor("w") == 2.625
    assert saved.get_tensor("w/ExponentialMovingAverage") == 0.0
