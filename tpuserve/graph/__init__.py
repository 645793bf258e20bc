"""Analysis, pruning and splitting of graphs."""
