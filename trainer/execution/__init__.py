"""The execution of several steps in one session.run, and hooks that stop a run."""
