"""Runs StableHLO modules on the devices of jax's PJRT client."""
