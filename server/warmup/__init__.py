"""Warm-up: runs a model version on recorded requests before it gets requests of clients."""

from server.warmup.file_warm_up import FileWarmUp as FileWarmUp
