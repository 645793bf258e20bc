"""Embedding tables as TPUEstimator's `embedding_config_spec` describes them.

`config` has the classes that a program creates, and `optimization_parameters` those that choose the
optimizers. `model` wraps the user's model_fn: it replaces ids in the features by rows of the
tables, and adds the updates of the tables to train_op. `ids` pads ids to dense tensors.

`tables` builds the ops of a step for all tables, and `table_step` those for one table. `replicas`
exchanges tensors between the replicas, which share each table. `activations` records the gradients
of the rows, and `row_optimizers` has the arithmetic of the optimizers.
"""
