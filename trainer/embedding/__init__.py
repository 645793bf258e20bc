"""Embedding tables as TPUEstimator's `embedding_config_spec` describes them.

`config` has the classes that a program creates. `model_fn` wraps the user's model_fn: the wrapper
replaces ids in the features by rows of the tables, and adds the updates of the tables to train_op.
`ids` pads ids to dense tensors. `replicas`, `lookup` and `update` build the ops of a step, in which
the replicas share each table; `row_optimizers` has the arithmetic of the optimizers.
"""
