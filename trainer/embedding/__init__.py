"""Embedding tables as TPUEstimator's `embedding_config_spec` describes them.

A user's program creates the classes of `config`, which describe tables, and those of
`optimization_parameters`, which choose the optimizers. `model` wraps the user's model_fn: it
replaces ids in the features by rows of the tables, and adds the updates of the tables to train_op.
`ids` pads ids to dense tensors.

`tables` builds the ops that look up and update all tables in a training step, and `table_step`
builds those for one table. `replicas` exchanges tensors between the replicas, which share each
table. `activations` records the gradients of the rows, and `row_optimizers` has the arithmetic of
the optimizers.
"""
