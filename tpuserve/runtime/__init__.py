"""Loads a metagraph and runs its signatures."""
