"""The class of the TPUEstimators that `model_to_tpu_estimator` makes of Keras models."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.export import WarmUp
from trainer.config.run_config import RunConfig
from trainer.estimator.tpu_estimator import TPUEstimator
from trainer.keras import serving_inputs
from trainer.keras.model.converted_model import ConvertedModel
from trainer.keras.model.options import check_convertible
from trainer.keras.step import model_fn
from trainer.keras.step.features import accept_sample_weights
from trainer.model.feature_codec import FeatureCodec
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import ModeKeys


class KerasTPUEstimator(TPUEstimator):
    """A TPUEstimator that trains, evaluates, predicts with and exports a Keras model.

    `model_to_tpu_estimator` creates this estimator.
    """

    def __init__(
        self,
        converted: ConvertedModel,
        config: RunConfig,
        class_weight: Mapping[int, float] | None,
        params: Any,
        **options: Any,
    ) -> None:
        self._class_weight = class_weight
        codec = FeatureCodec()
        super().__init__(
            model_fn.build_model_fn(converted, class_weight, codec),
            config=config,
            params=params,
            **options,
        )
        if options.get("batch_axis") is None:
            # Encode the input, because an input_fn may return a dataset that was made for
            # model.fit. Such a dataset can have batches of any size, and dtypes such as float64.
            assert isinstance(self._program, TPUModelProgram)
            self._program = dataclasses.replace(self._program, encode_input=codec.encode)
        self._converted = converted

    @property
    def converted_model(self) -> ConvertedModel:
        """Return the ConvertedModel, which holds the Keras model with its names and variables."""
        return self._converted

    @property
    def uses_tpu(self) -> bool:
        """Return whether the estimator runs on a TPU."""
        return self._use_tpu

    def with_options(
        self, config: RunConfig, *, use_tpu: bool, **options: Any
    ) -> "KerasTPUEstimator":
        """Return an estimator of the same model with other options of `TPUEstimator`.

        The new estimator keeps the class weights and the params of this one.
        """
        check_convertible(self._converted.adapter, self._converted.model, use_tpu=use_tpu)
        options["use_tpu"] = use_tpu
        return KerasTPUEstimator(
            self._converted, config, self._class_weight, self._program.params, **options
        )

    def _adapt_input_fn(self, input_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the user's input_fn, which may return (features, labels, sample_weight)."""
        return accept_sample_weights(input_fn)

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> bytes:
        """Write a SavedModel.

        If serving_input_receiver_fn is None, requests contain the inputs that the model defines.
        The other arguments and the result are those of `trainer.TPUEstimator.export_saved_model`.
        """
        return super().export_saved_model(
            export_dir_base,
            self._receiver_fn_or_default(serving_input_receiver_fn),
            assets_extra,
            as_text,
            checkpoint_path,
            experimental_mode,
            warm_up=warm_up,
        )

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> bytes:
        """Write a SavedModel.

        This is the older name of `export_saved_model`. The arguments and the result are those of
        `trainer.TPUEstimator.export_savedmodel`, except that serving_input_receiver_fn may be None.
        """
        return super().export_savedmodel(
            export_dir_base,
            self._receiver_fn_or_default(serving_input_receiver_fn),
            assets_extra,
            as_text,
            checkpoint_path,
            strip_default_attrs,
            warm_up=warm_up,
        )

    def _receiver_fn_or_default(self, receiver_fn: Callable[[], Any] | None) -> Callable[[], Any]:
        if receiver_fn is not None:
            return receiver_fn
        return serving_inputs.serving_input_receiver_fn(
            self._converted.model, to_tpu=self._export_to_tpu
        )
