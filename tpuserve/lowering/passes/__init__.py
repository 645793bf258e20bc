"""Transformations of whole function graph_ir."""
