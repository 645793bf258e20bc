"""Reports the results of compiling a SavedModel as data, tables and plots, with advice."""
