"""Distributes batches and gradients over hosts, replicas and cores."""
