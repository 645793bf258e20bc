"""Infeed and outfeed between the host and the cores."""
