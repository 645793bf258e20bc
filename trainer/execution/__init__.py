"""The graph of a run, the loop of steps in one session.run, and the handling of signals."""
