"""The distribution of batches and gradients over hosts, replicas and cores."""
