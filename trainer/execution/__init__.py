"""Creates the graph of a run, builds the loop of steps in one session.run, and handles signals."""
