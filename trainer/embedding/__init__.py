"""Embedding tables of a TPUEstimator; its argument `embedding_config_spec` describes them.

A user's program describes the tables by objects of the module `config`, and chooses the optimizers
by objects of `optimization_parameters`. `model` wraps the user's model_fn: it replaces ids in the
features by rows of the tables, and adds the updates of the tables to train_op. `ids` pads ids to
dense tensors.

`tables` builds the ops that look up and update all tables in a training step, and uses
`table_step`, which builds the ops for one table. `replicas` exchanges tensors between the replicas,
which share each table. `activations` records the gradients of the rows, and `row_optimizers` has
the arithmetic of the optimizers.
"""
