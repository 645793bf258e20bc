"""How batches and gradients spread over hosts, replicas and cores."""
