"""The report of a compilation: data, tables, plot, advice."""
