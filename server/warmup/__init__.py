"""Warm-up: runs a version on recorded requests before the version receives clients' requests."""

from server.warmup.warm_up import WarmUp as WarmUp
