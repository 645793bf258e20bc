"""Loads a metagraph of a SavedModel and runs its signatures."""
