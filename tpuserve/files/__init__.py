"""Files and directories that several rooms use: the cache, locks and plots."""
