"""tf.contrib.crf: linear-chain conditional random fields.

Source: Lafferty, McCallum and Pereira, "Conditional Random Fields", 2001. In all of it inputs are
[b, n, t] scores of t tags, sequence_lengths [b], transition_params [t, t] from tag to next tag.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.compat.contrib_names import missing_names

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]


def _sequence_mask(sequence_lengths: Any, steps: Any, dtype: Any = tf.float32) -> Any:
    return tf.sequence_mask(sequence_lengths, steps, dtype)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """[b] sums of the inputs at the tags, [b, n], of each sequence."""
    scores = tf.gather(inputs, tf.cast(tag_indices, tf.int32), batch_dims=2)
    mask = _sequence_mask(sequence_lengths, tf.shape(inputs)[1], scores.dtype)
    return tf.reduce_sum(scores * mask, 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """[b] sums of the transitions between the tags, [b, n], of each sequence."""
    tags = tf.cast(tag_indices, tf.int32)
    # XLA gathers so from a tensor, and not from a variable.
    transitions = tf.convert_to_tensor(transition_params)
    scores = tf.gather_nd(transitions, tf.stack([tags[:, :-1], tags[:, 1:]], 2))
    between = tf.maximum(tf.cast(sequence_lengths, tf.int32) - 1, 0)
    mask = _sequence_mask(between, tf.shape(tags)[1] - 1, scores.dtype)
    return tf.reduce_sum(scores * mask, 1)


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """[b] scores of the tags, [b, n], of each sequence: both sums."""
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """[b] logarithms of the sums of exp(score) over all ways to tag each sequence."""
    steps, inside = _time_major(inputs, sequence_lengths)

    def step(alphas: Any, now: Any) -> Any:
        scores, is_inside = now
        after = tf.reduce_logsumexp(alphas[:, :, None] + transition_params, 1) + scores
        return tf.where(is_inside, after, alphas)

    last = tf.scan(step, (steps[1:], inside[1:]), steps[0])
    whole = tf.concat([steps[:1], last], 0)[-1]
    norm = tf.reduce_logsumexp(whole, 1)
    return tf.where(tf.cast(sequence_lengths, tf.int32) > 0, norm, tf.zeros_like(norm))


def _time_major(inputs: Any, sequence_lengths: Any) -> tuple[Any, Any]:
    """[n, b, t] scores, and [n, b, 1] whether the step is one of the sequence."""
    mask = _sequence_mask(sequence_lengths, tf.shape(inputs)[1], tf.bool)
    return tf.transpose(inputs, [1, 0, 2]), tf.transpose(mask)[:, :, None]


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """[b] logarithms of the probabilities of the tags, and the transitions.

    Args:
      inputs, sequence_lengths: see above.
      tag_indices: [b, n].
      transition_params: [t, t]; the variable "transitions" by default.
    """
    if transition_params is None:
        tags = inputs.shape[2]
        transition_params = tf.compat.v1.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """[b, n] int32 tags of the highest score, 0 after the end, and [b] their scores."""
    steps, inside = _time_major(potentials, sequence_length)
    same = tf.zeros_like(steps[0], tf.int32) + tf.range(tf.shape(steps)[2])

    def forward(before: Any, now: Any) -> Any:
        scores, is_inside = now
        ways = before[0][:, :, None] + transition_params
        best = tf.where(is_inside, tf.reduce_max(ways, 1) + scores, before[0])
        # After its end a sequence stays where it is.
        return best, tf.where(is_inside, tf.argmax(ways, 1, output_type=tf.int32), same)

    found, back = tf.scan(forward, (steps[1:], inside[1:]), (steps[0], same))
    last = tf.concat([steps[:1], found], 0)[-1]
    end = tf.argmax(last, 1, output_type=tf.int32)
    earlier = tf.scan(
        lambda tag, pointers: tf.gather(pointers, tag, batch_dims=1), back, end, reverse=True
    )
    tags = tf.transpose(tf.concat([earlier, end[None]], 0))
    mask = _sequence_mask(tf.maximum(sequence_length, 1), tf.shape(tags)[1], tf.int32)
    return tags * mask, tf.reduce_max(last, 1)


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], float]:
    """The tags of the highest score of one sequence, and that score; of arrays.

    Args:
      score: [n, t].
      transition_params: [t, t].
    """
    best = np.asarray(score[0])
    back = []
    for each in score[1:]:
        ways = best[:, None] + transition_params
        back.append(ways.argmax(0))
        best = ways.max(0) + each
    tags = [int(best.argmax())]
    for pointers in reversed(back):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], float(best.max())


__getattr__ = missing_names.getattr_for("tf.contrib.crf", __all__)
