"""TPUEstimator: a subclass of `trainer.Estimator` that can run on a TPU."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from tpuserve import validation
from tpuserve.compilation.compiler import Compiler
from tpuserve.compilation.train_step import request as train_step_request
from tpuserve.compilation.train_step.train_step_report import TrainStepReport
from tpuserve.devices import find_emulated_tpu_system
from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.graph.row_sharding import MOD
from trainer.backends.base import ExecutionBackend
from trainer.backends.tpu.backend import create_tpu_backend
from trainer.config import strategies
from trainer.config.run_config import InputPipelineConfig, RunConfig
from trainer.embedding.config import EmbeddingConfigSpec
from trainer.embedding.model import EmbeddingModel
from trainer.estimator.estimator import Estimator
from trainer.estimator.train_step_builder import TrainStepBuilder
from trainer.exporting.strategies import ExportSavedModelApiVersion, ExportTargets
from trainer.hosts import program
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import ModeKeys

logger = logging.getLogger("tensorflow.trainer")


class TPUEstimator(Estimator):
    """Trains, evaluates, predicts with and exports the model that a model_fn builds.

    By default an export for serving has two metagraphs: {serve} for the CPU and {serve, tpu} for
    the TPU. Both have the same signatures and share one set of variables. A server selects a
    metagraph by its tags. To load the TPU metagraph by hand, run
    `tf.compat.v1.tpu.initialize_system()` in the session first. The argument
    `export_saved_model_api_version` decides which part of the model runs on the TPU:

    V1: the export wraps the whole model in `tpu.rewrite` and calls it by a TPUPartitionedCall.
    Ops that a TPU cannot run, such as ops on strings, move to the host by outside compilation:

      def model_fn(features, labels, mode, params):
          logits = network(features["x"])
          export_outputs = {"serving_default": PredictOutput({"logits": logits})}

          def host_call(logits):
              classes = tf.strings.as_string(tf.argmax(logits, axis=-1))
              export_outputs["classes"] = ClassificationOutput(classes=classes)

          tf.compat.v1.tpu.outside_compilation(host_call, logits)
          return TPUEstimatorSpec(mode, {"logits": logits}, export_outputs=export_outputs)

    V2: for the TPU metagraph, model_fn is called with params["use_tpu"] True and places parts of
    the model on the TPU. Parsing and table look-ups then stay on the host, and requests can be
    batched in the graph:

      def model_fn(features, labels, mode, params):
          words = table.lookup(features["word"])
          if mode == ModeKeys.PREDICT and params["use_tpu"]:
              (logits,) = inference_on_tpu(network, [words], num_batch_threads=1, max_batch_size=8,
                                           batch_timeout_micros=1000, allowed_batch_sizes=[1, 8])
          else:
              logits = network(words)

    To place the whole model on the TPU in V2, call `model_fn_inference_on_tpu` in model_fn.

    Example:
      estimator = TPUEstimator(model_fn, config=RunConfig(model_dir="/tmp/digits"),
                               use_tpu=False, train_batch_size=64)
      estimator.train(input_fn, max_steps=1000)
      estimator.export_saved_model("/tmp/export", serving_input_receiver_fn)

    Attributes:
      config: a copy of the RunConfig, with the model_dir of the estimator.
      params: a copy of the hyperparameters.
      model_dir: the directory of checkpoints and summaries.
      model_fn: the model_fn as a function of features, labels, mode and config; its argument params
        is bound to the estimator's hyperparameters.
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
        """Validate and store the settings; no graph is built yet.

        Args:
          model_fn: a function that takes features, and any of labels, mode, params and config, by
            name. It returns a TPUEstimatorSpec; on the CPU it may return an EstimatorSpec.
          model_dir: the directory of checkpoints and summaries. None takes the model_dir of the
            config or, if that is None too, creates a temporary directory.
          config: the settings of the run; required.
          params: hyperparameters for model_fn and input_fn, a dict or an HParams. The keys
            "batch_size" and "context" are reserved.
          use_tpu: whether to run on a TPU; False runs on the CPU.
          train_batch_size: the global batch size of training, in examples; required to train on a
            TPU. input_fn and model_fn find the batch size of the mode in params["batch_size"].
          eval_batch_size: the global batch size of evaluation, in examples.
          predict_batch_size: the global batch size of prediction, in examples.
          batch_axis: for each tensor of features and labels, the dimension that is the batch, or
            None for a tensor that every replica receives whole.
          eval_on_tpu: whether evaluation runs on the TPU too; False evaluates on the CPU.
          export_to_tpu: whether exports contain a {serve, tpu} metagraph.
          export_to_cpu: whether exports contain a {serve} metagraph.
          warm_start_from: the source of initial values if model_dir holds no checkpoint: the path
            of a checkpoint or of a SavedModel, or a `WarmStartSettings`.
          embedding_config_spec: the embedding tables of the model, an EmbeddingConfigSpec; None
            for a model without embedding tables.
          export_saved_model_api_version: which part of an exported model runs on the TPU: all of it
            (V1), or the part that model_fn chooses (V2).

        Raises:
          InvalidSetting: an argument is missing, out of range, or contradicts another argument.
          InvalidType: an argument has a wrong type.
        """
        _check_config(config)
        embedding_model = None
        if embedding_config_spec is not None:
            _check_embeddings(embedding_config_spec, config, on_tpu_only=use_tpu and eval_on_tpu)
            embedding_model = EmbeddingModel(embedding_config_spec)
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
            encode_input=embedding_model and embedding_model.encode_input,
            call_with_embeddings=embedding_model and embedding_model.call,
        )
        if use_tpu:
            _check_input_configuration(self._program.config)
        _check_batch_axis(batch_axis)
        self._use_tpu = use_tpu
        self._batch_axis = batch_axis
        self._eval_on_tpu = eval_on_tpu
        self._export_to_tpu = export_to_tpu
        self._export_to_cpu = export_to_cpu
        self._export_version = _to_export_version(export_saved_model_api_version)

    def train(
        self: Self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Self:
        """Train the model. The arguments and the result are those of `trainer.Estimator.train`.

        If `tpuserve compile --train` runs the program, this method only compiles the training
        step and ends the program.
        """
        request = train_step_request.find_pending()
        if request is not None:
            self._answer(request, input_fn)
            sys.exit()
        return super().train(input_fn, hooks, steps, max_steps, saving_listeners)

    def compile_train_step(
        self,
        input_fn: Callable[..., Any],
        topologies: str | Sequence[str],
        batch_sizes: Sequence[int] = (),
    ) -> TrainStepReport:
        """Compile the training step for TPUs, with libtpu's compiler; no TPU is needed.

        The step is compiled for a run with one replica on each device of a topology, and includes
        the sums over these replicas (all-reduce). Nothing is trained or written. The times in the
        report are the compiler's estimates.

        Args:
          input_fn: returns batches of (features, labels), as for `train`. The batches determine
            the shapes of the compiled step.
          topologies: TPU topologies in libtpu's notation, such as "v5e:2x2".
          batch_sizes: global batch sizes, in examples; empty for train_batch_size only.

        Returns:
          A report with an entry for each batch size and topology. The entry of a compilation that
          fails, for example because the replicas cannot share the batch equally, has an error.

        Raises:
          ExtraNotInstalled: jax or libtpu is missing, or has an unsupported version.
          InvalidInput: libtpu does not support a topology.
          InvalidSetting: train_batch_size is None, and batch_sizes is empty.
        """
        names = [topologies] if isinstance(topologies, str) else list(dict.fromkeys(topologies))
        with Compiler() as compiler:
            targets = compiler.describe_targets(names)
            request = train_step_request.TrainStepRequest(compiler, targets, batch_sizes)
            return self._answer(request, input_fn)

    def _answer(
        self, request: train_step_request.TrainStepRequest, input_fn: Callable[..., Any]
    ) -> TrainStepReport:
        assert isinstance(self._program, TPUModelProgram)
        default_batch_size = self._program.batch_sizes[ModeKeys.TRAIN]
        if default_batch_size is None and not request.batch_sizes:
            raise InvalidSetting(
                "train_batch_size is None, and no batch size was requested. Give TPUEstimator the "
                "global batch size, or name batch sizes to compile at."
            )
        builder = TrainStepBuilder(self._program, self._adapt_input_fn(input_fn), self._batch_axis)
        return request.answer(builder.build, default_batch_size or 0)

    @property
    def evaluates_on_tpu(self) -> bool:
        """Whether evaluation runs on the TPU that training uses."""
        return self._use_tpu and self._eval_on_tpu

    @property
    def runs_on_several_hosts(self) -> bool:
        """Whether the processes of several hosts train together."""
        if not self._use_tpu:
            return super().runs_on_several_hosts
        return program.runs_on_several_hosts(self._program.config)

    def _select_backend(self, mode: str) -> ExecutionBackend:
        """Return the execution backend (CPU and GPU, or TPU) that runs one of `ModeKeys`."""
        is_on_tpu = self.evaluates_on_tpu if mode == ModeKeys.EVAL else self._use_tpu
        if is_on_tpu:
            assert isinstance(self._program, TPUModelProgram)
            # Check the batch size before `create_tpu_backend` searches for a TPU, so that the error
            # on a machine without a TPU is about the batch size.
            if mode == ModeKeys.TRAIN and self._program.batch_sizes[mode] is None:
                raise InvalidSetting(
                    "train_batch_size is None: `train_batch_size` is needed to train on a TPU. "
                    "Give TPUEstimator the global batch size, in rows."
                )
            strategy = self._program.config.train_distribute
            if mode == ModeKeys.TRAIN and strategies.count_replicas(strategy) > 1:
                raise InvalidSetting(
                    f"RunConfig train_distribute is a {type(strategy).__name__} of "
                    f"{strategies.count_replicas(strategy)} replicas, and use_tpu=True makes each "
                    f"core a replica. Leave one of them out."
                )
            return create_tpu_backend(self._program, mode, batch_axis=self._batch_axis)
        if not self._use_tpu and find_emulated_tpu_system(os.environ):
            logger.warning(
                "%s runs on the CPU: a TPU is emulated, and TPUEstimator has use_tpu=False. To run "
                "on it, set use_tpu=True, or the program's flag for it.",
                mode,
            )
        self._check_not_sliced(mode)
        return super()._select_backend(mode)

    def _check_not_sliced(self, mode: str) -> None:
        config = self._program.config.tpu_config
        if mode == ModeKeys.EVAL and (
            config.eval_training_input_configuration == InputPipelineConfig.SLICED
        ):
            raise InvalidSetting(
                "eval_training_input_configuration is SLICED and evaluate() runs off the TPU: "
                "SLICED mode only works on use_tpu = True. Leave it out."
            )

    def _export_targets(self) -> ExportTargets:
        """Return which metagraphs an export writes: for the CPU, for the TPU, or both."""
        return ExportTargets(self._export_to_cpu, self._export_to_tpu, self._export_version)


def _check_config(config: Any) -> None:
    if config is None:
        raise InvalidSetting(
            "config is None: `config` must be provided with type trainer.RunConfig."
        )


def _check_embeddings(spec: Any, config: Any, *, on_tpu_only: bool) -> None:
    if not isinstance(spec, EmbeddingConfigSpec):
        raise InvalidType(
            f"embedding_config_spec is {spec!r:.200}. Give a "
            f"tf.compat.v1.estimator.tpu.experimental.EmbeddingConfigSpec, or None."
        )
    if not on_tpu_only and spec.partition_strategy == MOD:
        raise InvalidSetting(
            "partition_strategy is 'mod', and use_tpu or eval_on_tpu is False: Mod sharding of "
            "embedding tables not supported on CPU. Use 'div'."
        )
    tpu_config = getattr(config, "tpu_config", None)
    if tpu_config is None:
        return
    mode = tpu_config.per_host_input_for_training
    if mode not in (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.PER_HOST_V2):
        raise InvalidSetting(
            f"per_host_input_for_training is {mode}, and embedding_config_spec is given. Only "
            f"PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding."
        )


def _check_input_configuration(config: RunConfig) -> None:
    """Check that model parallelism is not combined with PER_SHARD_V1 input."""
    is_per_shard = config.tpu_config.per_host_input_for_training == InputPipelineConfig.PER_SHARD_V1
    if is_per_shard and config.tpu_config.num_cores_per_replica is not None:
        raise InvalidSetting(
            "per_host_input_for_training is PER_SHARD_V1 and num_cores_per_replica "
            f"{config.tpu_config.num_cores_per_replica}. Model parallelism only supports per host "
            f"input for training: use PER_HOST_V1 or PER_HOST_V2."
        )


def _check_batch_axis(batch_axis: Any) -> None:
    if batch_axis is None:
        return
    if not isinstance(batch_axis, list | tuple | Mapping):
        raise InvalidType(
            f"batch_axis is {batch_axis!r}. Give an axis for each tensor of features and labels, "
            f"as a list or nested as they are, or None."
        )
    for axis in tf.nest.flatten(batch_axis):
        validation.check_integer("An axis of batch_axis", axis, least=0, optional=True)


def _to_export_version(value: Any) -> ExportSavedModelApiVersion:
    try:
        return ExportSavedModelApiVersion(value)
    except ValueError:
        raise InvalidSetting(
            f"export_saved_model_api_version is {value!r}. Give ExportSavedModelApiVersion.V1 or "
            f"V2, or 1 or 2."
        ) from None
