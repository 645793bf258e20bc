"""tf.contrib.crf: linear-chain conditional random fields.

Source: Lafferty, McCallum and Pereira, "Conditional Random Fields", 2001.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.compat import contrib_missing_names

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
    """Return a [b, steps] mask: 1 (or True) for a sequence's steps, 0 (or False) for padding."""
    return tf.sequence_mask(sequence_lengths, steps, dtype)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """Return the sum of the scores of each sequence's tags, float [b].

    Args:
      tag_indices: int [b, n], the tag at each step.
      sequence_lengths: int [b], the number of steps of each sequence.
      inputs: float [b, n, t], the score of each of t tags at each step.
    """
    scores = tf.gather(inputs, tf.cast(tag_indices, tf.int32), batch_dims=2)
    mask = _sequence_mask(sequence_lengths, tf.shape(inputs)[1], scores.dtype)
    return tf.reduce_sum(scores * mask, 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the sum of the scores of the transitions between each sequence's tags, float [b].

    Args:
      tag_indices: int [b, n], the tag at each step.
      sequence_lengths: int [b], the number of steps of each sequence.
      transition_params: float [t, t], the score of a transition from one tag (row) to the next.
    """
    tags = tf.cast(tag_indices, tf.int32)
    # Convert transition_params, which may be a variable, to a tensor: XLA cannot compile the op by
    # which gather_nd would read single elements of a variable.
    transitions = tf.convert_to_tensor(transition_params)
    scores = tf.gather_nd(transitions, tf.stack([tags[:, :-1], tags[:, 1:]], 2))
    transition_counts = tf.maximum(tf.cast(sequence_lengths, tf.int32) - 1, 0)
    mask = _sequence_mask(transition_counts, tf.shape(tags)[1] - 1, scores.dtype)
    return tf.reduce_sum(scores * mask, 1)


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the score of each sequence's tags, float [b].

    The score is the sum of `crf_unary_score` and `crf_binary_score`, which document the arguments.
    """
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the logarithm of each sequence's partition function, float [b].

    The partition function is the sum of exp(score) over all possible sequences of tags.

    Args:
      inputs: float [b, n, t], the score of each of t tags at each step.
      sequence_lengths: int [b], the number of steps of each sequence; later steps are padding.
      transition_params: float [t, t], the score of a transition from one tag (row) to the next.
    """
    scores_by_step, follows = _time_major(inputs, sequence_lengths)

    def step(alphas: Any, elements: Any) -> Any:
        scores, does_follow = elements
        new_alphas = tf.reduce_logsumexp(alphas[:, :, None] + transition_params, 1) + scores
        return tf.where(does_follow, new_alphas, alphas)

    last_alphas = tf.scan(step, (scores_by_step, follows), scores_by_step[0])[-1]
    norm = tf.reduce_logsumexp(last_alphas, 1)
    return tf.where(tf.cast(sequence_lengths, tf.int32) > 0, norm, tf.zeros_like(norm))


def _time_major(inputs: Any, sequence_lengths: Any) -> tuple[Any, Any]:
    """Transpose the inputs so that the steps are the first dimension."""
    steps = tf.shape(inputs)[1]
    inside = tf.transpose(_sequence_mask(sequence_lengths, steps, tf.bool))
    follows = inside & (tf.range(steps) > 0)[:, None]
    return tf.transpose(inputs, [1, 0, 2]), follows[:, :, None]


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """Compute the log-likelihood of each sequence's tags.

    Args:
      inputs: float [b, n, t], the score of each of t tags at each step.
      tag_indices: int [b, n], the tag at each step.
      sequence_lengths: int [b], the number of steps of each sequence; later steps are padding.
      transition_params: float [t, t], the score of a transition from one tag (row) to the next.
        None creates the variable "transitions" for the scores.
    """
    if transition_params is None:
        num_tags = inputs.shape[2]
        transition_params = tf.compat.v1.get_variable("transitions", [num_tags, num_tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """Find the tags with the highest score for each sequence by the Viterbi algorithm.

    Args:
      potentials: float [b, n, t], the score of each of t tags at each step.
      transition_params: float [t, t], the score of a transition from one tag (row) to the next.
      sequence_length: int [b], the number of steps of each sequence; later steps are padding.

    Returns:
      The tags, int32 [b, n], with 0 after the end of a sequence, and their scores, float [b].
    """
    scores_by_step, follows = _time_major(potentials, sequence_length)
    own_tags = tf.zeros_like(scores_by_step[0], tf.int32) + tf.range(tf.shape(scores_by_step)[2])

    def forward(state: Any, elements: Any) -> Any:
        scores, does_follow = elements
        candidates = state[0][:, :, None] + transition_params
        best = tf.where(does_follow, tf.reduce_max(candidates, 1) + scores, state[0])
        # In the first step and in padding, let each tag point back to itself. Backtracking starts
        # at step n, and thus carries the best last tag through the padding to the sequence's end.
        return best, tf.where(does_follow, tf.argmax(candidates, 1, output_type=tf.int32), own_tags)

    scores, backpointers = tf.scan(
        forward, (scores_by_step, follows), (scores_by_step[0], own_tags)
    )
    last_scores = scores[-1]
    last_tags = tf.argmax(last_scores, 1, output_type=tf.int32)
    # Drop the first result, to which the first step points back: it is the tag of that step again.
    earlier_tags = tf.scan(
        lambda tag, pointers: tf.gather(pointers, tag, batch_dims=1),
        backpointers,
        last_tags,
        reverse=True,
    )[1:]
    tags = tf.transpose(tf.concat([earlier_tags, last_tags[None]], 0))
    mask = _sequence_mask(tf.maximum(sequence_length, 1), tf.shape(tags)[1], tf.int32)
    return tags * mask, tf.reduce_max(last_scores, 1)


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], float]:
    """Find the tags with the highest score for one sequence, with NumPy instead of graph ops.

    Args:
      score: float [n, t], the score of each tag at each step.
      transition_params: float [t, t], the score of a transition from one tag (row) to the next.
    """
    best = np.asarray(score[0])
    backpointers = []
    for step_scores in score[1:]:
        candidates = best[:, None] + transition_params
        backpointers.append(candidates.argmax(0))
        best = candidates.max(0) + step_scores
    tags = [int(best.argmax())]
    for pointers in reversed(backpointers):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], float(best.max())


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.crf", __all__)
