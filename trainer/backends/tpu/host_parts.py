"""The `StepPart`s that send eval_metrics, predictions and a host_call's tensors to the host."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.hosts.group import current_group
from trainer.infeed import ReplicaBatch
from trainer.model import eval_metrics
from trainer.model.spec import TPUEstimatorSpec, call_on_host
from trainer.tensorflow_internals import get_hook_saver, is_saver_built, reset_saver

v1 = tf.compat.v1


def rebuild_savers_on_host(hooks: Iterable[Any]) -> None:
    """Rebuild, in the default graph, the ops of Savers that model_fn has built in a TPU step.

    The Savers in the collection SAVERS and in hooks are rebuilt, with the same variables and
    options, because a session cannot run their ops inside the TPU computation.
    """
    graph = v1.get_default_graph()
    hook_savers = [
        get_hook_saver(hook) for hook in hooks if isinstance(hook, v1.train.CheckpointSaverHook)
    ]
    collected_savers = graph.get_collection(v1.GraphKeys.SAVERS)
    for saver in {id(saver): saver for saver in (*hook_savers, *collected_savers)}.values():
        if isinstance(saver, v1.train.Saver) and is_saver_built(saver) and not _is_in(graph, saver):
            reset_saver(saver)
            saver.build()


def _is_in(graph: Any, saver: Any) -> bool:
    try:
        graph.as_graph_element(saver.saver_def.filename_tensor_name)
    except KeyError:
        return False
    return True


class StepPart:
    """A kind of data, in addition to the batch, that enters or leaves a replica's step.

    Examples are the tensors of a host_call and of evaluation metrics. A subclass overrides the
    methods that it needs. Some methods build ops inside the TPU computation, as parts of the step.

    1. `dequeue`, in the step: before model_fn.
    2. `step_ops` and `outfeed`, in the step: after model_fn.
    3. `host_ops`, on the host: only if `outfeed` returns tensors. A second call builds the ops for
       steps in which only some replicas have a batch; both calls share their variables.

    Attributes:
      name: key of the part's tensors in the outfeed; error messages show the name. Each part of a
        step has a different name.
    """

    name: str

    def dequeue(self, batch: ReplicaBatch) -> ReplicaBatch:
        """Return the batch for model_fn, with the data that this part adds to it."""
        return batch

    def step_ops(self, spec: Any) -> Sequence[Any]:
        """Return the ops that this part adds to each step of each replica."""
        return ()

    def outfeed(self, spec: Any, batch: ReplicaBatch) -> Any:
        """Return the tensors that each replica sends to the host.

        Returns:
          A nest of tensors with static shapes of rank 1 or more; None to send nothing. The host
          concatenates the replicas' tensors along the first dimension.
        """
        return None

    def host_ops(self, tensors: Any) -> Any:
        """Build the ops that the host runs with the tensors of one outfeed.

        Args:
          tensors: the tensors that the host receives, nested as `outfeed` returned them. The
            tensors of all replicas are concatenated along the first dimension, without padding.

        Returns:
          A nest of ops and tensors that the host runs for each outfeed; None if `receive` needs
          only the values of `tensors`.
        """
        return None

    def receive(self, values: Any) -> None:
        """Process the values of one outfeed; called in the outfeed thread.

        Args:
          values: the values of the ops and tensors that `host_ops` returned, as numpy arrays. If
            `host_ops` returned None, the values of the tensors that `outfeed` returned.
        """


class HostCallPart(StepPart):
    """Sends a host_call's tensors to the host, which calls the host_call's function with them."""

    name = "host_call"

    def __init__(self) -> None:
        self._function: Callable[..., Any] | None = None

    def outfeed(self, spec: Any, batch: ReplicaBatch) -> Any:
        """Return the tensors of the host_call, which the step sends; None without a host_call."""
        host_call = getattr(spec, "host_call", None)
        if not host_call:
            return None
        self._function, tensors = host_call
        if not tensors:
            raise InvalidSetting(
                f"host_call has the tensors {tensors!r}. On a TPU, the function is called when the "
                f"tensors of a step arrive on the host. Give at least one, for example "
                f"tf.reshape(global_step, [1])."
            )
        return tensors

    def host_ops(self, tensors: Any) -> Any:
        """Call the function of the host_call, which builds ops that run on the host.

        On several hosts, only host 0 calls the function, because the function usually writes
        summaries.
        """
        assert self._function is not None
        if not current_group().is_first:
            return None
        return call_on_host((self._function, tensors))


class EvalMetricsPart(StepPart):
    """Sends the loss and the tensors of eval_metrics to the host, which computes the metrics.

    Attributes:
      metrics: the metrics, computed on the host; None until `host_ops` has been called. A second
        call of `host_ops` only builds another op that updates the variables of these metrics.
    """

    name = "eval_metrics"

    def __init__(self) -> None:
        self._metric_fn: Callable[..., Any] | None = None
        self.metrics: eval_metrics.EvalMetrics | None = None

    def outfeed(self, spec: Any, batch: ReplicaBatch) -> Any:
        """Return the replica's loss, its number of examples and the tensors of eval_metrics.

        Examples that are padding do not count.
        """
        if not isinstance(spec, TPUEstimatorSpec):
            raise InvalidType(
                f"model_fn returned an {type(spec).__name__} for an evaluation on a TPU. Return "
                f"a TPUEstimatorSpec, or evaluate with eval_on_tpu=False."
            )
        self._metric_fn, tensors = spec.eval_metrics or (None, [])
        num_rows = tf.math.count_nonzero(batch.mask)
        return {
            "loss": tf.reshape(tf.cast(spec.loss, tf.float32), [1]),
            "num_rows": tf.reshape(tf.cast(num_rows, tf.float32), [1]),
            "tensors": tensors,
        }

    def host_ops(self, tensors: Any) -> Any:
        """Build the metrics, and return the op that updates them.

        The loss is a mean over the replicas, weighted by their numbers of examples without padding.
        """
        metric_ops = {}
        if self._metric_fn is not None:
            metric_ops = call_on_host((self._metric_fn, tensors["tensors"]))
        loss = tf.compat.v1.metrics.mean(tensors["loss"], weights=tensors["num_rows"])
        metrics = eval_metrics.build_eval_metrics(metric_ops, loss)
        self.metrics = self.metrics or metrics
        return metrics.update


class PredictionsPart(StepPart):
    """Sends the predictions of model_fn to the host, and collects them in a list.

    Attributes:
      batches: a list with one dict for each step, in the order of the input: name of a prediction →
        array [number of examples, ...]. The reader of this list clears it before the next loop.

    Args:
      select: takes model_fn's predictions and returns those that the user of `predict` asked
        for.
    """

    name = "predictions"

    def __init__(self, select: Callable[[Any], Any]) -> None:
        self._select = select
        self.batches: list[Any] = []

    def outfeed(self, spec: Any, batch: ReplicaBatch) -> Any:
        """Return the predictions that the user of `predict` asked for, which the step sends."""
        predictions = self._select(spec.predictions)
        if not isinstance(predictions, dict):
            raise InvalidSetting(
                f"predictions are {predictions!r:.100}, and must be a dict of tensors on a TPU. "
                f"Return predictions={{'name': tensor}} from model_fn."
            )
        return predictions

    def receive(self, values: Any) -> None:
        """Append the predictions of one step to `batches`."""
        self.batches.append(values)
