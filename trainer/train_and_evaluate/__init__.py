"""train_and_evaluate, in one process or as part of a cluster."""
