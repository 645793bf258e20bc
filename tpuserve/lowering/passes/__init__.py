"""The passes of the lowering, each of which analyses or transforms a whole graph or function."""
