"""Requests that a model is run on before it answers clients'."""

from server.warmup.warm_up import WarmUp as WarmUp
