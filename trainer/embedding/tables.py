"""Builds the variables, lookups and updates of all embedding tables in a training step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from tpuserve.graph import batch_rows
from trainer.checkpoints import warm_start
from trainer.embedding.config import EmbeddingConfig, Table
from trainer.embedding.replicas import Replicas
from trainer.embedding.row_optimizers import RowOptimizer, build_optimizer
from trainer.embedding.table_step import RowGradients, TableStep, mark
from trainer.tensorflow_internals import get_private_attribute, tpu_feature_column

# Key of a collection in the graph of a step. The collection holds one bool tensor of shape []:
# whether the step is the last of its loop. The last step must also apply its own gradients.
IS_LAST_STEP = "tpuserve/is_last_step"


def update_later(
    name: str,
    collected: RowGradients,
    activations: Sequence[Any],
    update: Callable[[RowGradients], list[Any]],
) -> list[Any]:
    """Build the ops that apply the previous step's gradients and store this step's gradients.

    Args:
      activations: the results of the lookups of this step, which must run before the update.
    """
    (is_last,) = tf.compat.v1.get_collection(IS_LAST_STEP)[-1:]
    with tf.init_scope():
        kept_ids = _keep(f"{name}/ids", tf.constant([-1]))
        dimension = collected.gradients.shape.as_list()[1]
        kept_gradients = _keep(f"{name}/gradients", tf.zeros([1, dimension]))
        has_kept = _create_local_variable(f"{name}/has_gradients", False)
    earlier = [variable.read_value() for variable in (kept_ids, kept_gradients, has_kept)]
    with tf.control_dependencies(activations):
        first = update(RowGradients(*map(tf.identity, earlier)))
    with tf.control_dependencies(first):
        ids = tf.where(is_last, collected.ids, -1)
        second = update(
            RowGradients(tf.identity(ids), tf.identity(collected.gradients), tf.identity(is_last))
        )
    with tf.control_dependencies(earlier):
        later = [
            kept_ids.assign(tf.where(is_last, -1, collected.ids), read_value=False),
            kept_gradients.assign(collected.gradients, read_value=False),
        ]
        for operation in later:
            _mark(operation)
        later.append(has_kept.assign(tf.logical_not(is_last), read_value=False))
    return [*first, *second, *later]


def _keep(name: str, initial_value: Any) -> Any:
    # Leave the first dimension of the variable unknown, because the number of ids differs between
    # batches.
    shape = tf.TensorShape([None, *initial_value.shape[1:]])
    variable = _create_local_variable(name, initial_value, validate_shape=False, shape=shape)
    _mark(variable.handle.op)
    return variable


def _create_local_variable(name: str, initial_value: Any, **options: Any) -> Any:
    return tf.compat.v1.Variable(
        initial_value,
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        use_resource=True,
        name=name,
        **options,
    )


def _mark(operation: Any) -> None:
    """Mark an op that creates or assigns a variable whose number of rows depends on the batch."""
    value = tf.compat.v1.AttrValue(b=True)
    get_private_attribute(operation, "_set_attr")(batch_rows.ATTRIBUTE, value)


class StepTables:
    """The tables of an EmbeddingConfig in the step of a replica.

    If table_to_config_dict describes the tables, a table's variable has the name of the table. If a
    feature column describes a table, the variable must have the same name as off the TPU.

    Args:
      is_pipelined: whether the update of a step is delayed until the next step; see
        `pipelining`.
    """

    def __init__(
        self, config: EmbeddingConfig, replicas: int, *, is_pipelined: bool = False
    ) -> None:
        self._is_pipelined = is_pipelined
        self._config = config
        self._replicas = Replicas(replicas)
        self._steps: dict[str, TableStep] = {}
        # Name of a table whose variable is not created yet → placeholder for the variable's handle.
        self._pending: dict[str, Any] = {}
        for table in config.tables:
            if config.columns:
                handle = tf.compat.v1.placeholder(tf.resource, [])
                self._pending[table.name] = handle
            else:
                handle = None
            self._steps[table.name] = TableStep(
                table, config.features, self._replicas, config.spec.partition_strategy, handle
            )
            if handle is None:
                self._create_variable(table, table.name)

    def look_up(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Look up the ids of all features in their tables; return the rows by feature name.

        The rows of an example's ids are combined, as the feature's table prescribes. These results
        are called activations.
        """
        activations: dict[str, Any] = {}
        for step in self._steps.values():
            activations.update(step.look_up(features))
        return activations

    def create_column_variables(self, *, must_use_all: bool) -> None:
        """Create the variables of the feature columns, after model_fn has used the columns.

        Args:
          must_use_all: whether model_fn must have used all columns. If not, the lookup of an unused
            column keeps a placeholder for its variable, and must not run.
        """
        if not self._pending:
            return
        collection = tf.compat.v1.get_collection_ref(tpu_feature_column._TPU_FC_TO_SCOPE)
        recorded = collection[0] if collection else {}
        for table in self._config.tables:
            name = table.name.removeprefix("tbl_")
            if name not in recorded and not must_use_all:
                continue
            if name not in recorded:
                raise InvalidSetting(
                    f"model_fn does not use the feature columns of "
                    f"{', '.join(map(repr, table.features))}, which are in embedding_config_spec. "
                    f"Pass them to tf.compat.v1.keras.layers.DenseFeatures or "
                    f"tf.compat.v1.feature_column.input_layer, or leave them out of the spec."
                )
            scope, variable = recorded[name]
            self._create_variable(table, f"{scope}/{variable}" if scope else variable)
        collection.clear()

    def update(
        self, activations: Mapping[str, Any], gradients: Mapping[str, Any], global_step: Any
    ) -> list[Any]:
        """Build the ops that update all tables.

        Args:
          global_step: the number of finished steps, int64 [].
        """
        factor = self._config.spec.experimental_gradient_multiplier_fn
        operations = []
        for table in self._config.tables:
            own = {name: gradients[name] for name in table.features}
            if factor is not None:
                scale = tf.cast(factor(global_step), tf.float32)
                own = {name: scale * gradient for name, gradient in own.items()}
            collected = self._steps[table.name].collect_gradients(own)
            looked_up = [activations[name] for name in table.features]
            operations += self._update_table(table, collected, looked_up, global_step)
        return operations

    def _update_table(
        self, table: Table, collected: RowGradients, activations: list[Any], global_step: Any
    ) -> list[Any]:
        optimizer = build_optimizer(table.parameters, self._config.spec.clipping_limit)
        slots = self._create_slots(table, optimizer)
        rate = tf.cast(_learning_rate(table, global_step), tf.float32)
        step = self._steps[table.name]

        def update(gradients: RowGradients) -> list[Any]:
            return step.update(gradients, optimizer, slots, rate)

        if self._is_pipelined:
            return update_later(step.variable.op.name, collected, activations, update)
        return update(collected)

    def _create_variable(self, table: Table, name: str) -> None:
        """Create a table's variable, and replace the placeholder for its handle in all ops."""
        step = self._steps[table.name]
        variable = create_table_variable(table, name)
        if step.sharding is not None:
            mark(variable.handle.op, step.sharding)
        graph = tf.compat.v1.get_default_graph()
        # If the step is built in the graph of a function, capture the handle. The ops of a function
        # can use a tensor of the outer graph only as a captured argument.
        handle = graph.capture(variable.handle) if hasattr(graph, "capture") else variable.handle
        placeholder = self._pending.pop(table.name, None)
        for operation in [] if placeholder is None else placeholder.consumers():
            for index, tensor in enumerate(operation.inputs):
                if tensor is placeholder:
                    get_private_attribute(operation, "_update_input")(index, handle)
        step.handle, step.variable = handle, variable

    def _create_slots(self, table: Table, optimizer: RowOptimizer) -> list[Any]:
        step = self._steps[table.name]
        handles = []
        for slot in optimizer.slots:
            variable = _get_variable(
                f"{step.variable.op.name}/{slot.suffix}",
                step.variable.shape,
                tf.compat.v1.constant_initializer(slot.initial_value),
            )
            if step.sharding is not None:
                mark(variable.handle.op, step.sharding)
            handles.append(variable.handle)
        return handles


def create_table_variable(table: Table, name: str) -> Any:
    """Create the variable of a table, float32 [vocabulary_size, dimension]."""
    shape = [table.config.vocabulary_size, table.config.dimension]
    return _get_variable(name, shape, table.config.initializer, warm_start.EMBEDDING_TABLES)


def _get_variable(name: str, shape: Any, initializer: Any, *collections: str) -> Any:
    return tf.compat.v1.get_variable(
        name,
        shape,
        tf.float32,
        initializer,
        trainable=False,
        use_resource=True,
        collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, *collections],
    )


def _learning_rate(table: Table, global_step: Any) -> Any:
    config = table.config
    if config.learning_rate is not None:
        return config.learning_rate
    rate = config.learning_rate_fn or table.parameters.learning_rate
    return rate(global_step) if callable(rate) else rate
