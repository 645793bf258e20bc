"""TPUEstimator: an Estimator whose program can run on a TPU as well as off it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.export import WarmUp
from tpuserve.export.warm_up import normalize_warm_up
from trainer.backends import tpu
from trainer.backends.base import ExecutionBackend
from trainer.config import validation
from trainer.config.run_config import InputPipelineConfig, RunConfig
from trainer.estimator.estimator import Estimator
from trainer.exporting import saved_model
from trainer.exporting.strategies import ExportSavedModelApiVersion
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import ModeKeys

logger = logging.getLogger("tensorflow.trainer")


class TPUEstimator(Estimator):
    """Trains, evaluates, predicts with and exports the model that a model_fn builds.

    Example:
      estimator = TPUEstimator(model_fn, config=RunConfig(model_dir="/tmp/digits"),
                               use_tpu=False, train_batch_size=64)
      estimator.train(input_fn, max_steps=1000)
      estimator.export_saved_model("/tmp/export", serving_input_receiver_fn)

    An export of PREDICT has two metagraphs, {serve} with the model as it is and {serve, tpu} with
    the one for a TPU. Both have the same signatures and share one set of variables. A server
    picks one by its tags; to load the second by hand, run `tf.compat.v1.tpu.initialize_system()`
    in the session first. Who places the model on the TPU is told by
    `export_saved_model_api_version`:

    V1: the export wraps the whole model in `tpu.rewrite` and calls it by a TPUPartitionedCall.
    What a TPU cannot do, such as strings, goes to its host by an outside compilation:

      def model_fn(features, labels, mode, params):
          logits = network(features["x"])
          export_outputs = {"serving_default": PredictOutput({"logits": logits})}

          def host_call(logits):
              classes = tf.strings.as_string(tf.argmax(logits, axis=-1))
              export_outputs["classes"] = ClassificationOutput(classes=classes)

          tf.compat.v1.tpu.outside_compilation(host_call, logits)
          return TPUEstimatorSpec(mode, {"logits": logits}, export_outputs=export_outputs)

    V2: model_fn is called with params["use_tpu"] True for the TPU's metagraph and places its parts
    itself, which leaves parsing and look-ups to the host and lets requests be batched in the graph:

      def model_fn(features, labels, mode, params):
          words = table.lookup(features["word"])
          if mode == ModeKeys.PREDICT and params["use_tpu"]:
              (logits,) = inference_on_tpu(network, [words], num_batch_threads=1, max_batch_size=8,
                                           batch_timeout_micros=1000, allowed_batch_sizes=[1, 8])
          else:
              logits = network(words)

    For a model that is wholly on the TPU `model_fn_inference_on_tpu` does that in one line.

    Attributes:
      config, params, model_dir, model_fn: see `Estimator`.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Sequence[Any] | None = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: Any = None,
        export_saved_model_api_version: int = ExportSavedModelApiVersion.V1,
    ) -> None:
        """Sets the estimator up; nothing runs yet.

        Args:
          model_fn: takes features, labels, mode, params and config, those of them it names, and
            returns a TPUEstimatorSpec; off the TPU it may return an EstimatorSpec.
          model_dir: where checkpoints and summaries go; by default the config's, else a new
            temporary directory.
          config: how to run; cannot be None.
          params: hyperparameters for model_fn and input_fn, a dict or an HParams; "batch_size" and
            "context" are reserved.
          use_tpu: run on a TPU. False runs on the CPU.
          train_batch_size, eval_batch_size, predict_batch_size: global batch sizes, in rows,
            which functions find in params["batch_size"]. Training on a TPU needs the first.
          batch_axis: for each tensor of features and labels the dimension that is the batch, or
            None for tensors that every replica gets whole.
          eval_on_tpu: evaluate on the TPU as well; False evaluates on the CPU.
          export_to_tpu, export_to_cpu: which metagraphs an export holds.
          warm_start_from: see `Estimator`.
          embedding_config_spec: not supported; None.
          export_saved_model_api_version: see `ExportSavedModelApiVersion`.

        Raises:
          InvalidSetting: an argument is missing, impossible, or contradicts another.
          InvalidType: an argument is of a wrong type.
        """
        if config is None:
            raise InvalidSetting(
                "config is None: `config` must be provided with type trainer.RunConfig."
            )
        if embedding_config_spec is not None:
            raise InvalidSetting(
                f"embedding_config_spec is {embedding_config_spec!r}: embeddings on the TPU are "
                f"not supported yet. Leave it out, and build the tables in model_fn."
            )
        self._set_up(
            TPUModelProgram,
            model_fn,
            model_dir,
            config,
            params,
            warm_start_from,
            batch_sizes={
                ModeKeys.TRAIN: train_batch_size,
                ModeKeys.EVAL: eval_batch_size,
                ModeKeys.PREDICT: predict_batch_size,
            },
        )
        if use_tpu:
            _check_input(config)
        _check_batch_axis(batch_axis)
        self._use_tpu = use_tpu
        self._batch_axis = batch_axis
        self._eval_on_tpu = eval_on_tpu
        self._export_to_tpu = export_to_tpu
        self._export_to_cpu = export_to_cpu
        self._export_version = _export_version(export_saved_model_api_version)

    @property
    def evaluates_on_tpu(self) -> bool:
        """Whether evaluation wants a TPU, the one that training has."""
        return self._use_tpu and self._eval_on_tpu

    def _place(self, mode: str) -> ExecutionBackend:
        is_on_tpu = self.evaluates_on_tpu if mode == ModeKeys.EVAL else self._use_tpu
        if is_on_tpu:
            assert isinstance(self._program, TPUModelProgram)
            # Before a TPU is looked for: the program is wrong wherever it runs.
            if mode == ModeKeys.TRAIN and self._program.batch_sizes[mode] is None:
                raise InvalidSetting(
                    "train_batch_size is None: `train_batch_size` is needed to train on a TPU. "
                    "Give TPUEstimator the global batch size, in rows."
                )
            return tpu.place(self._program, mode, self._batch_axis)
        self._refuse_sliced(mode)
        return super()._place(mode)

    def _refuse_sliced(self, mode: str) -> None:
        config = self._program.config.tpu_config
        if mode == ModeKeys.EVAL and (
            config.eval_training_input_configuration == InputPipelineConfig.SLICED
        ):
            raise InvalidSetting(
                "eval_training_input_configuration is SLICED and evaluate() runs off the TPU: "
                "SLICED mode only works on use_tpu = True. Leave it out."
            )

    def _export(
        self,
        export_dir_base: str,
        input_receiver_fns: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        checkpoint_path: str | None,
        warm_up: WarmUp | bool | None,
        strip_default_attrs: bool = True,
    ) -> bytes:
        if self._export_to_tpu and set(input_receiver_fns) - {ModeKeys.PREDICT}:
            logger.warning("TPU metagraphs are written for mode %r alone", ModeKeys.PREDICT)
        directory = saved_model.write_saved_model(
            self._program,
            export_dir_base,
            input_receiver_fns,
            to_cpu=self._export_to_cpu,
            to_tpu=self._export_to_tpu,
            version=self._export_version,
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
            strip_default_attrs=strip_default_attrs,
            warm_up=normalize_warm_up(warm_up),
        )
        return directory.encode()


def _check_input(config: RunConfig) -> None:
    is_per_shard = config.tpu_config.per_host_input_for_training == InputPipelineConfig.PER_SHARD_V1
    if is_per_shard and config.tpu_config.num_cores_per_replica is not None:
        raise InvalidSetting(
            "per_host_input_for_training is PER_SHARD_V1 and num_cores_per_replica "
            f"{config.tpu_config.num_cores_per_replica}. Model parallelism only supports per host "
            f"input for training: use PER_HOST_V1 or PER_HOST_V2."
        )


def _check_batch_axis(batch_axis: Any) -> None:
    """Refuses axes that can be those of no input; whether they fit, the input will say."""
    if batch_axis is None:
        return
    if not isinstance(batch_axis, list | tuple | Mapping):
        raise InvalidType(
            f"batch_axis is {batch_axis!r}. Give an axis for each tensor of features and labels, "
            f"as a list or nested as they are, or None."
        )
    for axis in tf.nest.flatten(batch_axis):
        validation.check("An axis of batch_axis", axis, least=0)


def _export_version(value: Any) -> ExportSavedModelApiVersion:
    try:
        return ExportSavedModelApiVersion(value)
    except ValueError:
        raise InvalidSetting(
            f"export_saved_model_api_version is {value!r}. Give ExportSavedModelApiVersion.V1 or "
            f"V2, or 1 or 2."
        ) from None
