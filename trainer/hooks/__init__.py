"""SessionRunHooks, progress reports and TensorBoard summaries."""
