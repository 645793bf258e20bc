"""The queues in which requests wait to run, one per model; models share the threads fairly."""
