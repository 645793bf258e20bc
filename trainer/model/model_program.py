"""ModelProgram: the user's model_fn with its settings, and the code that calls user functions."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.config import hyperparameters
from trainer.config.run_config import RunConfig
from trainer.execution import train_loop
from trainer.inputs import input_pipeline
from trainer.model.spec import AnySpec, EstimatorSpec, ModeKeys, TPUEstimatorSpec

RESERVED_PARAMS = ("batch_size", "context")
_MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")


# What TensorFlow's feature columns say.
_MISSING_FEATURE = re.compile(r"Feature (\S+) is not in features dictionary")


@dataclass(frozen=True)
class ModelProgram:
    """The user's model_fn with its settings, for training, evaluation and prediction.

    Attributes:
      model_fn: takes features, and any of labels, mode, params and config by name.
      warm_start: the WarmStartSettings of a run without a checkpoint; None for no warm start.
    """

    model_fn: Callable[..., Any]
    params: Any
    config: RunConfig
    model_dir: str
    warm_start: Any = None

    specs: ClassVar[tuple[type[Any], ...]] = (EstimatorSpec,)

    def __post_init__(self) -> None:
        names = unbound_argument_names(self.model_fn)
        if "features" not in names:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has no argument 'features'. Declare "
                f"model_fn(features, labels, mode, params)."
            )
        unknown = [name for name in names if name not in _MODEL_FN_ARGUMENTS]
        if unknown:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has arguments {', '.join(unknown)} that get no "
                f"value. It can have {', '.join(_MODEL_FN_ARGUMENTS)}; bind others with "
                f"functools.partial."
            )
        if isinstance(self.model_fn, tf.types.experimental.PolymorphicFunction):
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} is a tf.function, and the estimator builds the "
                f"graph itself. Leave out @tf.function."
            )
        if self.has_params() and "params" not in (*names, *_bound_arguments(self.model_fn)):
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has no argument 'params', and params are given. "
                f"Declare it, or leave them out."
            )

    def has_params(self) -> bool:
        """Return whether the user passed hyperparameters."""
        values = getattr(self.params, "values", None)
        return bool(values()) if callable(values) else bool(self.params)

    def iteration_plan(self) -> train_loop.IterationPlan:
        """Return the IterationPlan, which decides how many steps each training loop makes.

        If the RunConfig was created without a TPUConfig, each loop makes one step.
        """
        if self.config.has_tpu_config:
            return train_loop.build_iteration_plan(self.config.tpu_config)
        # Without a TPUConfig, make one step in each loop: a program that is written for
        # tf.estimator.Estimator expects its hooks to be called for each step.
        return train_loop.FixedIterations(1)

    def model_params(self, mode: str, *, is_export: bool = False, for_tpu: bool = False) -> Any:
        """Return a copy of the hyperparameters for one call of model_fn.

        Subclasses add items that depend on the arguments.

        Args:
          for_tpu: whether the graph is the TPU metagraph of an export with
            `export_saved_model_api_version` V2.
        """
        return hyperparameters.with_hyperparameters(self.params, {})

    def input_params(self, mode: str) -> Any:
        """Return a copy of the hyperparameters for one call of an input_fn."""
        return hyperparameters.with_hyperparameters(self.params, {})

    def call_model_fn(
        self,
        features: Any,
        labels: Any,
        mode: str,
        *,
        is_export: bool = False,
        for_tpu: bool = False,
        config: Any = None,
    ) -> AnySpec:
        """Call model_fn, and check that it returned an EstimatorSpec for the right mode.

        Args:
          for_tpu: whether the graph is the TPU metagraph of an export with
            `export_saved_model_api_version` V2, in which model_fn itself places parts of the model
            on the TPU.
          config: the RunConfig to pass; None for the attribute `config`.

        Raises:
          InvalidSetting: model_fn returned no EstimatorSpec, or an EstimatorSpec of another mode;
            or there are labels in another mode than PREDICT, and model_fn has no argument for
            them.
        """
        available = {
            "features": features,
            "labels": labels,
            "mode": mode,
            "params": self.model_params(mode, is_export=is_export, for_tpu=for_tpu),
            "config": config or self.config,
        }
        names = unbound_argument_names(self.model_fn)
        # Allow labels that a prediction does not need, so that it can share an input_fn with the
        # evaluation.
        if labels is not None and "labels" not in names and mode != ModeKeys.PREDICT:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} has no argument 'labels', and input_fn "
                f"returns labels. Declare the argument, or return features alone."
            )
        arguments = {name: available[name] for name in names if name in available}
        try:
            spec = self._call(
                lambda features: self.model_fn(**{**arguments, "features": features}),
                features,
                mode,
                is_export=is_export,
            )
        except ValueError as error:
            missing = _MISSING_FEATURE.search(str(error))
            if missing is None or not isinstance(features, Mapping):
                raise
            raise InvalidSetting(
                f"a feature column reads the feature {missing[1]!r}, and the features are "
                f"{', '.join(map(repr, features))}. Return it from input_fn, or leave the column "
                f"out."
            ) from error
        if not isinstance(spec, self.specs):
            expected = " or ".join(spec_type.__name__ for spec_type in reversed(self.specs))
            article = "an" if expected[0] in "AEIOU" else "a"
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} returned {type(spec).__name__}. Return "
                f"{article} {expected}."
            )
        if spec.mode != mode:
            raise InvalidSetting(
                f"model_fn {_name(self.model_fn)} returned a spec of mode {spec.mode!r} when "
                f"called for {mode!r}. Pass the mode argument on."
            )
        return spec

    def _call(
        self, model_fn: Callable[[Any], Any], features: Any, mode: str, *, is_export: bool
    ) -> AnySpec:
        spec: AnySpec = model_fn(features)
        return spec

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Call an input_fn for one mode; return its Dataset or tensors."""
        available = {"params": self.input_params(mode), "config": self.config, "mode": mode}
        if self.config.train_distribute or self.config.eval_distribute:
            available["input_context"] = tf.distribute.InputContext()
        names = unbound_argument_names(input_fn)
        returned = input_fn(**{name: available[name] for name in names if name in available})
        return input_pipeline.find_dataset(returned)


@dataclass(frozen=True)
class TPUModelProgram(ModelProgram):
    """The ModelProgram of a TPUEstimator.

    It adds the batch size to the params of input_fn and of model_fn. To the params of model_fn, it
    also adds use_tpu.

    Attributes:
      batch_sizes: mode → global batch size, in examples; None if the user passed none.
      encode_input: takes the return value of input_fn, input_fn's batch size and the mode, and
        returns the input to feed to a TPU. None feeds the input unchanged.
      call_with_embeddings: replaces ids in the features by embeddings, calls a model_fn, and
        returns its EstimatorSpec.
    """

    batch_sizes: Mapping[str, int | None] = field(default_factory=dict)
    encode_input: Callable[[Any, int, str], Any] | None = None
    call_with_embeddings: Callable[[Callable[[Any], Any], Any, str, bool], Any] | None = None

    def iteration_plan(self) -> train_loop.IterationPlan:
        """Return the plan for the number of steps per loop: TPUConfig.iterations_per_loop."""
        return train_loop.build_iteration_plan(self.config.tpu_config)

    specs: ClassVar[tuple[type[Any], ...]] = (EstimatorSpec, TPUEstimatorSpec)

    def __post_init__(self) -> None:
        super().__post_init__()
        reserved = [name for name in RESERVED_PARAMS if name in self.params]
        if reserved:
            raise InvalidSetting(
                f"params has {', '.join(map(repr, reserved))}; {' and '.join(RESERVED_PARAMS)} "
                f"are reserved keys that the run sets. Name yours otherwise."
            )
        for mode, size in self.batch_sizes.items():
            validation.check_integer(_batch_size_argument(mode), size, least=1, optional=True)

    def model_params(self, mode: str, *, is_export: bool = False, for_tpu: bool = False) -> Any:
        """Return a copy of the hyperparameters with use_tpu and, except in exports, batch_size.

        The arguments are those of `ModelProgram.model_params`.
        """
        added = {} if is_export else self._batch_size(mode)
        return hyperparameters.with_hyperparameters(self.params, {"use_tpu": for_tpu, **added})

    def _call(
        self, model_fn: Callable[[Any], Any], features: Any, mode: str, *, is_export: bool
    ) -> AnySpec:
        """Call a model_fn; if the model has embedding tables, first replace ids by embeddings."""
        if self.call_with_embeddings is None:
            return super()._call(model_fn, features, mode, is_export=is_export)
        spec: AnySpec = self.call_with_embeddings(model_fn, features, mode, is_export)
        return spec

    def input_params(self, mode: str) -> Any:
        """Return a copy of the hyperparameters with the global batch size as batch_size."""
        return hyperparameters.with_hyperparameters(self.params, self._batch_size(mode))

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Call an input_fn for one mode; return its Dataset or tensors."""
        try:
            return super().call_input_fn(input_fn, mode)
        except KeyError as error:
            if error.args != ("batch_size",) or self._batch_size(mode):
                raise
            raise InvalidSetting(
                f"input_fn {_name(input_fn)} reads params['batch_size'], and none was given. Pass "
                f"{_batch_size_argument(mode)} to TPUEstimator."
            ) from error

    def _batch_size(self, mode: str) -> dict[str, int]:
        size = self.batch_sizes.get(mode)
        return {} if size is None else {"batch_size": size}


def _batch_size_argument(mode: str) -> str:
    return "predict_batch_size" if mode == ModeKeys.PREDICT else f"{mode}_batch_size"


def unbound_argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's arguments that functools.partial has not bound."""
    if not callable(function):
        raise InvalidSetting(f"{function!r} cannot be called. Pass a function.")
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    # Exclude the arguments that functools.partial has bound by name. The signature of a partial
    # still contains such an argument, as a keyword-only argument with a default.
    bound = _bound_arguments(function)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in kinds and parameter.name not in bound
    ]


def expected_argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a function expects from its caller.

    These are the arguments that functools.partial has not bound.
    """
    names = unbound_argument_names(function)
    # Read the kinds of the arguments from the function that functools.partial has wrapped. In the
    # signature of the partial, all arguments after a bound one are keyword-only.
    inner = function.func if isinstance(function, functools.partial) else function
    parameters = inspect.signature(inner).parameters
    return [
        name
        for name in names
        if parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        or parameters[name].default is inspect.Parameter.empty
    ]


def _bound_arguments(function: Callable[..., Any]) -> Mapping[str, Any]:
    return getattr(function, "keywords", {})


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
