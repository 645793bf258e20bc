"""RunConfig, TPUConfig, TF_CONFIG and hyperparameters."""
