"""Implements train_and_evaluate, for a single process and for a cluster.

The package is not called train_and_evaluate, because Python would then set the package as the
attribute `trainer.train_and_evaluate`, in place of the function.
"""
