"""A user's program, its model_fn and settings, and how its functions are called."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer import counts
from trainer.config import RunConfig
from trainer.spec import ModeKeys, TPUEstimatorSpec

RESERVED_PARAMS = ("batch_size", "context")
_MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")


@dataclass(frozen=True)
class Program:
    """What every mode runs.

    Attributes:
      model_fn: takes features and, where it names them, labels, mode, params and config.
      params: hyperparameters; each call gets a copy with what the run adds to it.
      config: how to run.
      model_dir: where checkpoints and summaries are.
      batch_sizes: mode → global batch size, in rows; None where none was given.
    """

    model_fn: Callable[..., Any]
    params: Mapping[str, Any]
    config: RunConfig
    model_dir: str
    batch_sizes: Mapping[str, int | None]

    def __post_init__(self) -> None:
        reserved = [name for name in RESERVED_PARAMS if name in self.params]
        if reserved:
            raise InvalidSetting(
                f"params has {', '.join(map(repr, reserved))}; {' and '.join(RESERVED_PARAMS)} "
                f"are reserved keys that the run sets. Name yours otherwise."
            )
        arguments = _arguments(self.model_fn)
        if "features" not in arguments:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has no argument 'features'. Declare "
                f"model_fn(features, labels, mode, params)."
            )
        unknown = [name for name in arguments if name not in _MODEL_FN_ARGUMENTS]
        if unknown:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has arguments {', '.join(unknown)} that nobody "
                f"fills. It can have {', '.join(_MODEL_FN_ARGUMENTS)}; bind others with "
                f"functools.partial."
            )
        for mode, size in self.batch_sizes.items():
            counts.check(f"batch size for mode {mode!r}", size, least=1)

    def call_model_fn(
        self, features: Any, labels: Any, mode: str, *, is_export: bool = False
    ) -> TPUEstimatorSpec:
        """What model_fn returns for one mode, checked to be a spec of that mode.

        Raises:
          InvalidSetting: it returned something else, or wants labels that are not there.
        """
        params = copy.deepcopy(dict(self.params))
        params["use_tpu"] = False
        batch_size = self.batch_sizes.get(mode)
        if batch_size is not None and not is_export:
            params["batch_size"] = batch_size
        available = {"labels": labels, "mode": mode, "params": params, "config": self.config}
        arguments = _arguments(self.model_fn)
        if labels is not None and "labels" not in arguments:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has no argument 'labels', and the input_fn "
                f"gives some. Declare it, or return features alone."
            )
        spec = self.model_fn(
            features, **{name: available[name] for name in arguments if name in available}
        )
        if not isinstance(spec, TPUEstimatorSpec):
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} returned {type(spec).__name__}. Return a "
                f"TPUEstimatorSpec."
            )
        if spec.mode != mode:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} returned a spec of mode {spec.mode!r} when "
                f"called for {mode!r}. Pass the mode argument on."
            )
        return spec

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """What input_fn returns for one mode: a Dataset, or tensors.

        Off the TPU there is one replica on one host: params["batch_size"] is the global one.

        Raises:
          InvalidSetting: input_fn wants a batch size and none was given for the mode.
        """
        arguments = _arguments(input_fn)
        params = copy.deepcopy(dict(self.params))
        if self.batch_sizes.get(mode) is not None:
            params["batch_size"] = self.batch_sizes[mode]
        available = {"params": params, "config": self.config, "mode": mode}
        try:
            return input_fn(**{name: available[name] for name in arguments if name in available})
        except KeyError as error:
            if error.args == ("batch_size",) and "batch_size" not in params:
                argument = {ModeKeys.PREDICT: "predict_batch_size"}.get(mode, f"{mode}_batch_size")
                raise InvalidSetting(
                    f"input_fn {_name(input_fn)} reads params['batch_size'], and none was given. "
                    f"Pass {argument} to TPUEstimator."
                ) from error
            raise


def _arguments(function: Callable[..., Any]) -> list[str]:
    if not callable(function):
        raise InvalidSetting(f"{function!r} cannot be called. Pass a function.")
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    # An argument that functools.partial has bound by name stays in the signature as
    # keyword-only with a default; it is not for us to fill.
    bound = getattr(function, "keywords", {})
    return [each.name for each in parameters if each.kind in kinds and each.name not in bound]


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
