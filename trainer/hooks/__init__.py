"""SessionRunHooks for training and evaluation; some report progress or write summaries."""
