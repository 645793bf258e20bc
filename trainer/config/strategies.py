"""The distribution strategies of a RunConfig: their check, and their number of replicas."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType

logger = logging.getLogger("tensorflow.trainer")

_STRATEGIES = ("train_distribute", "eval_distribute")


@dataclass(frozen=True)
class DistributeConfig:
    """The strategies of training and evaluation, for `RunConfig(experimental_distribute=)`.

    Attributes:
      train_distribute: a tf.distribute.Strategy, or None.
      eval_distribute: a tf.distribute.Strategy, or None.
      remote_cluster: must be None: each process of a cluster runs the program.
    """

    train_distribute: Any = None
    eval_distribute: Any = None
    remote_cluster: Any = None


def resolve_strategies(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return train_distribute and eval_distribute of a RunConfig, after a check.

    Args:
      settings: train_distribute, eval_distribute and experimental_distribute, as given.

    Raises:
      InvalidSetting: a strategy is given twice, or there is a remote_cluster.
      InvalidType: a value is not a strategy or, for experimental_distribute, a DistributeConfig.
    """
    both = settings["experimental_distribute"]
    if both is not None and not all(hasattr(both, name) for name in _STRATEGIES):
        raise InvalidType(
            f"RunConfig experimental_distribute is {both!r}. Give a "
            f"tf.contrib.distribute.DistributeConfig, or None."
        )
    if getattr(both, "remote_cluster", None) is not None:
        raise InvalidSetting(
            f"RunConfig experimental_distribute has remote_cluster={both.remote_cluster!r}, and a "
            f"program cannot run in other processes. Run it in each of them, with TF_CONFIG."
        )
    resolved = {}
    for name in _STRATEGIES:
        given, grouped = settings[name], getattr(both, name, None)
        if None not in (given, grouped) and given is not grouped:
            raise InvalidSetting(
                f"RunConfig has {name}={given!r}, and its experimental_distribute {grouped!r}. "
                f"Give one of them."
            )
        resolved[name] = strategy = grouped if given is None else given
        if strategy is not None and not isinstance(
            getattr(strategy, "num_replicas_in_sync", None), int
        ):
            raise InvalidType(
                f"RunConfig {name} is {strategy!r}. Give a tf.distribute.Strategy, or None."
            )
    return resolved


def count_replicas(strategy: Any) -> int:
    """Return the number of replicas of a strategy; None has one."""
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)


def log_strategies(config: Any) -> None:
    """Log how an Estimator runs the strategies of its RunConfig."""
    for name in _STRATEGIES:
        strategy = getattr(config, name)
        replicas, kind = count_replicas(strategy), type(strategy).__name__
        if strategy is not None and replicas == 1:
            logger.info(
                "RunConfig %s: %s has one replica, which runs as without a strategy", name, kind
            )
        elif name == "eval_distribute" and replicas > 1:
            logger.info(
                "RunConfig %s: %s has %d replicas, whose batches one evaluates in turn",
                name,
                kind,
                replicas,
            )
