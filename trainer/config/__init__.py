"""The settings of a run: RunConfig, TPUConfig, the variable TF_CONFIG, and hyperparameters."""
