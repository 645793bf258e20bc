"""The parts of a replicated step, and the loop that runs it."""
