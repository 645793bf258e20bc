"""The implementation of train_and_evaluate, for a single process and for a cluster.

The package is not called train_and_evaluate: importing a package of that name would replace the
function `trainer.train_and_evaluate` by the package.
"""
