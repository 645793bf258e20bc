"""The implementation of train_and_evaluate, in one process or as part of a cluster.

The package does not bear the name of the function: importing it would replace the function
`trainer.train_and_evaluate` by the package.
"""
