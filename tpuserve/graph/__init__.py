"""Analysis and splitting of GraphDefs."""
