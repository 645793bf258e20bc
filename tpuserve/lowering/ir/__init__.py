"""The representation of graphs that the rules and passes of the lowering transform."""
