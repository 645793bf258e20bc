"""Graph passes of the conversion, each of which rewrites a graph so that a TPU can run it."""
