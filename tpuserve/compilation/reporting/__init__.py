"""The report of a compilation as data, as tables and as a plot, with recommendations."""
