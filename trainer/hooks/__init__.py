"""SessionRunHooks, progress and summaries."""
