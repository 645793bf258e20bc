"""Looks up and updates one embedding table in a training step of several replicas.

The replicas share the table: each replica owns a part of its rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph import row_sharding
from tpuserve.graph.row_sharding import RowSharding
from trainer.embedding.config import FeatureConfig, Table
from trainer.embedding.replicas import Replicas
from trainer.embedding.row_optimizers import RowOptimizer
from trainer.infeed.tensor_nest import PADDED_IDS, PADDED_WEIGHTS
from trainer.tensorflow_internals import get_private_attribute


@dataclass(frozen=True)
class RowGradients:
    """The gradients with respect to rows of a table, for the batches of all replicas together.

    Each replica holds the gradients of all replicas, those of the first replica first.

    Attributes:
      ids: the id of the row of each gradient, int32 [n]; -1 for padding. Each replica has as many.
      gradients: float32 [n, dimension].
      is_applied: whether the update takes place, bool []. Without ids, some optimizers still change
        all rows.
    """

    ids: Any
    gradients: Any
    is_applied: Any = True


class TableStep:
    """Builds the lookup and the update of one table in one step.

    Attributes:
      variable: the table's variable; None until it is created.
      handle: the resource handle of the variable. Until the variable is created, a placeholder for
        the handle, or None.
      sharding: the division of the rows among the replicas; None if each replica has all rows.

    Args:
      partition_strategy: "div" gives each of n replicas consecutive rows, "mod" every n-th row.
    """

    def __init__(
        self,
        table: Table,
        features: Mapping[str, FeatureConfig],
        replicas: Replicas,
        partition_strategy: str,
        handle: Any,
    ) -> None:
        self.table, self.handle = table, handle
        self.variable: Any = None
        self.sharding = divide_rows(table, partition_strategy, replicas.count)
        self._features, self._replicas = features, replicas
        self._ids: dict[str, Any] = {}
        self._weights: dict[str, Any] = {}

    def look_up(self, padded: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Look up the ids of each feature of the table, and combine the rows of each example.

        The results are called activations.

        Args:
          padded: name of a feature → its dense ids and weights, as `ids.pad_features` returns them.

        Returns:
          Name of a feature → float32 [batch size, dimension]. For a sequence feature, whose rows
          are not combined: float32 [batch size, max_sequence_length, dimension].
        """
        partial = []
        for name in self.table.features:
            ids, weights = padded[name][PADDED_IDS], padded[name][PADDED_WEIGHTS]
            if self.sharding is not None:
                ids, weights = self._replicas.gather(ids), self._replicas.gather(weights)
            rows = self._read(ids) * weights[..., tf.newaxis]
            if not self._features[name].max_sequence_length:
                rows = tf.reduce_sum(rows, 1, keepdims=True)
            partial.append(rows)
            self._ids[name], self._weights[name] = ids, weights
        if self.sharding is not None:
            sizes = [rows.shape.as_list()[1] for rows in partial]
            sums = self._replicas.scatter_sums(tf.concat(partial, 1))
            partial = tf.split(sums, sizes, 1)
        return {
            name: rows if self._features[name].max_sequence_length else tf.squeeze(rows, 1)
            for name, rows in zip(self.table.features, partial, strict=True)
        }

    def collect_gradients(self, gradients: Mapping[str, Any]) -> RowGradients:
        """Return the gradients of all replicas with respect to the rows that were looked up.

        Args:
          gradients: name of a feature → the gradients of its activations on this replica, of the
            same shape as the result of `look_up`.
        """
        all_ids, all_gradients = [], []
        for name, gradient in gradients.items():
            ids, weights = self._ids[name], self._weights[name]
            if self.sharding is None:
                ids, weights = self._replicas.gather(ids), self._replicas.gather(weights)
            gradient = self._replicas.gather(gradient)
            if not self._features[name].max_sequence_length:
                gradient = gradient[:, tf.newaxis]
            count, dimension = self._replicas.count, self.table.config.dimension
            all_ids.append(tf.reshape(ids, [count, -1]))
            all_gradients.append(
                tf.reshape(weights[..., tf.newaxis] * gradient, [count, -1, dimension])
            )
        return RowGradients(
            tf.reshape(tf.concat(all_ids, 1), [-1]),
            tf.reshape(tf.concat(all_gradients, 1), [-1, dimension]),
        )

    def update(
        self,
        collected: RowGradients,
        optimizer: RowOptimizer,
        slots: list[Any],
        learning_rate: Any,
    ) -> list[Any]:
        """Build the ops that update the rows that this replica owns."""
        if optimizer.updates_all_rows:
            return self._update_all_rows(collected, optimizer, slots, learning_rate)
        occurrences = _Occurrences(collected, self._replicas.count)
        is_owned = self._is_owned(occurrences.ids)
        # XLA needs static shapes. So write as many rows as the batch has ids, although this replica
        # owns only some of these rows.
        first = tf.argmax(tf.cast(is_owned, tf.int32), output_type=tf.int32)
        has_any = tf.reduce_any(is_owned)
        chosen = tf.where(is_owned, tf.range(tf.size(is_owned)), first)
        ids = tf.where(has_any, tf.gather(occurrences.ids, chosen), self._first_row())
        old = [self._gather(handle, ids) for handle in (self.handle, *slots)]
        if optimizer.parameters.use_gradient_accumulation:
            sums = tf.gather(occurrences.sum_gradients(), chosen)
            rows, new_slots = optimizer.step(old[0], old[1:], sums, learning_rate)
            new = [rows, *new_slots]
        else:
            new = _step_for_each_replica(optimizer, old, occurrences, chosen, learning_rate)
        return [
            self._write(handle, ids, tf.where(has_any, after, before))
            for handle, before, after in zip((self.handle, *slots), old, new, strict=True)
        ]

    def _update_all_rows(
        self, collected: RowGradients, optimizer: RowOptimizer, slots: list[Any], rate: Any
    ) -> list[Any]:
        """Build the ops that update all rows that this replica owns."""
        ids = self._own_rows()
        is_owned = self._is_owned(collected.ids)
        places = tf.where(is_owned, self._local_row(collected.ids), -1)
        sums = tf.math.unsorted_segment_sum(collected.gradients, places, tf.size(ids))
        old = [self._gather(handle, ids) for handle in (self.handle, *slots)]
        # `ids` can repeat a row. Writing it several times is correct, because the values are equal.
        gradients = tf.gather(sums, self._local_row(ids))
        rows, new_slots = optimizer.step(old[0], old[1:], gradients, rate)
        return [
            self._write(handle, ids, tf.where(collected.is_applied, after, before))
            for handle, before, after in zip(
                (self.handle, *slots), old, (rows, *new_slots), strict=True
            )
        ]

    def _read(self, ids: Any) -> Any:
        is_owned = self._is_owned(ids)
        safe = tf.reshape(tf.where(is_owned, ids, self._first_row()), [-1])
        rows = self._gather(self.handle, safe)
        shape = tf.concat([tf.shape(ids), [self.table.config.dimension]], 0)
        rows = tf.ensure_shape(tf.reshape(rows, shape), [*ids.shape, self.table.config.dimension])
        return tf.where(is_owned[..., tf.newaxis], rows, tf.zeros([]))

    def _gather(self, handle: Any, ids: Any) -> Any:
        rows = tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=tf.float32)
        rows.set_shape([ids.shape[0], self.table.config.dimension])
        return rows

    def _write(self, handle: Any, ids: Any, rows: Any) -> Any:
        operation = tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=ids, updates=rows)
        if self.sharding is not None:
            mark(operation, self.sharding)
        return operation

    def _is_owned(self, ids: Any) -> Any:
        if self.sharding is None:
            return ids >= 0
        return (ids >= 0) & tf.equal(self.sharding.owner(ids), self._replicas.index)

    def _first_row(self) -> Any:
        return 0 if self.sharding is None else self.sharding.first_row(self._replicas.index)

    def _local_row(self, ids: Any) -> Any:
        return ids if self.sharding is None else self.sharding.local_row(ids)

    def _own_rows(self) -> Any:
        """Return the ids of all rows that this replica owns, int32 [rows_per_replica]."""
        if self.sharding is None:
            return tf.range(self.table.config.vocabulary_size)
        places = tf.range(self.sharding.rows_per_replica)
        first, last = self._first_row(), self.sharding.num_rows - 1
        if self.sharding.strategy == row_sharding.DIV:
            return tf.minimum(first + places, last)
        count = self.sharding.num_replicas
        rows = first + places * count
        return tf.where(rows > last, rows - count, rows)


def divide_rows(table: Table, strategy: str, replicas: int) -> RowSharding | None:
    """Return the division of a table's rows among replicas; None if each replica has all rows."""
    sharding = RowSharding(strategy, table.config.vocabulary_size, replicas)
    return sharding if replicas > 1 and sharding.is_complete else None


def mark(operation: Any, sharding: RowSharding) -> None:
    """Set a node attribute on an op of a variable whose rows are divided among the replicas.

    Later passes over the graph find such variables by the attribute, which
    `tpuserve.graph.row_sharding` names.
    """
    value = tf.compat.v1.AttrValue(s=sharding.strategy.encode())
    get_private_attribute(operation, "_set_attr")(row_sharding.ATTRIBUTE, value)


class _Occurrences:
    """The gradients of a batch, grouped by the id of the table row that they belong to."""

    def __init__(self, collected: RowGradients, replicas: int) -> None:
        self.replicas = replicas
        order = tf.argsort(collected.ids, stable=True)
        ids = tf.gather(collected.ids, order)
        self._gradients = tf.gather(collected.gradients, order)
        self._count = tf.size(ids)
        is_first = tf.concat([[True], tf.not_equal(ids[1:], ids[:-1])], 0)
        self._segments = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
        self.ids = tf.math.unsorted_segment_max(ids, self._segments, self._count)
        # The gradients that pipelining starts with are fewer than the replicas.
        self._replica_of = order // tf.maximum(self._count // replicas, 1)

    def sum_gradients(self) -> Any:
        """Return the sum of the gradients of each id in `ids`, float32 [n, dimension]."""
        return tf.math.unsorted_segment_sum(self._gradients, self._segments, self._count)

    def sum_gradients_of(self, replica: Any) -> tuple[Any, Any]:
        is_own = tf.equal(self._replica_of, replica)
        gradients = tf.where(is_own[:, tf.newaxis], self._gradients, tf.zeros([]))
        return (
            tf.math.unsorted_segment_sum(gradients, self._segments, self._count),
            tf.math.unsorted_segment_max(tf.cast(is_own, tf.int32), self._segments, self._count)
            > 0,
        )


def _step_for_each_replica(
    optimizer: RowOptimizer, old: list[Any], occurrences: _Occurrences, chosen: Any, rate: Any
) -> list[Any]:
    """Apply the sums of the replicas one after the other for an id that several replicas have."""

    def apply(replica: Any, *values: Any) -> Any:
        gradients, exists = occurrences.sum_gradients_of(replica)
        gradients = tf.gather(gradients, chosen)
        exists = tf.gather(exists, chosen)[:, tf.newaxis]
        rows, slots = optimizer.step(values[0], values[1:], gradients, rate)
        after = [
            tf.ensure_shape(tf.where(exists, new, value), value.shape)
            for new, value in zip((rows, *slots), values, strict=True)
        ]
        return (replica + 1, *after)

    _, *new = tf.while_loop(
        lambda replica, *values: replica < occurrences.replicas, apply, [tf.constant(0), *old]
    )
    return list(new)
