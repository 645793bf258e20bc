"""The SessionRunHooks of training and evaluation, progress reports and TensorBoard summaries."""
