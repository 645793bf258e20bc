"""Creates a run's graph and the loop of steps that one session.run makes; handles signals."""
