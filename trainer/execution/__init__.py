"""Steps in one session.run, and how a run is stopped."""
