"""tf.contrib.crf, compared with sums over all possible tags of two short sequences."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.compat.contrib import crf

pytestmark = pytest.mark.numeric

INPUTS = np.array(
    [[[1.0, 0.0], [0.0, 2.0], [3.0, 2.5]], [[0.0, 1.0], [0.5, 0.0], [9.0, 9.0]]], np.float32
)
LENGTHS = [3, 2]
TRANSITIONS = np.array([[0.5, -1.0], [-2.0, 1.0]], np.float32)


def _score(row: int, tags: Any) -> float:
    unary = sum(INPUTS[row, step, tag] for step, tag in enumerate(tags))
    return float(unary + sum(TRANSITIONS[a, b] for a, b in zip(tags, tags[1:], strict=False)))


def _scores_of_taggings(row: int) -> dict[Any, float]:
    taggings = itertools.product([0, 1], repeat=LENGTHS[row])
    return {tags: _score(row, tags) for tags in taggings}


def _best(row: int) -> Any:
    scores = _scores_of_taggings(row)
    return max(scores, key=lambda tags: scores[tags])


def test_the_likelihood_is_relative_to_all_taggings() -> None:
    tags = [[0, 1, 1], [1, 0, 1]]
    likelihoods, _ = crf.crf_log_likelihood(tf.constant(INPUTS), tags, LENGTHS, TRANSITIONS)
    expected = [
        _score(row, tags[row][: LENGTHS[row]])
        - np.log(np.exp(list(_scores_of_taggings(row).values())).sum())
        for row in (0, 1)
    ]
    np.testing.assert_allclose(likelihoods, expected, rtol=1e-5)


def test_the_best_tagging_is_found() -> None:
    tags, scores = crf.crf_decode(tf.constant(INPUTS), TRANSITIONS, LENGTHS)
    for row in (0, 1):
        best = _best(row)
        length = LENGTHS[row]
        assert tuple(tags[row].numpy()[:length]) == best
        assert tags[row].numpy()[length:].sum() == 0
        assert float(scores[row]) == pytest.approx(_scores_of_taggings(row)[best])
        alone, score = crf.viterbi_decode(INPUTS[row, :length], TRANSITIONS)
        assert tuple(alone) == best
        assert score == pytest.approx(_scores_of_taggings(row)[best])


@pytest.mark.slow
def test_sequences_of_one_step_need_no_static_shape() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = v1.placeholder(tf.float32, [None, None, 2])
        lengths = v1.placeholder(tf.int32, [None])
        tags = v1.placeholder(tf.int32, [None, None])
        likelihoods, _ = crf.crf_log_likelihood(inputs, tags, lengths, TRANSITIONS)
        (gradients,) = tf.gradients(likelihoods, inputs)
        feed = {inputs: INPUTS[:, :1], lengths: [1, 1], tags: [[0], [0]]}
        probabilities, slopes, (best, scores) = session.run(
            [tf.exp(likelihoods), gradients, crf.crf_decode(inputs, TRANSITIONS, lengths)], feed
        )
    # Without transitions, the likelihood of a tag is its softmax, e / (1 + e) for the better one.
    better = np.e / (1 + np.e)
    np.testing.assert_allclose(probabilities, [better, 1 - better], rtol=1e-6)
    expected = [[[1 - better, better - 1]], [[better, -better]]]
    np.testing.assert_allclose(slopes, expected, rtol=1e-5)
    assert (best.tolist(), scores.tolist()) == ([[0], [1]], [1.0, 1.0])
