"""The execution of several steps in one session.run, and the ways to stop a run."""
