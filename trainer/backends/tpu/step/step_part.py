"""The interface of a step part, which adds inputs or outputs to a replica's step."""

from collections.abc import Sequence
from typing import Any

from trainer.infeed import Batch


class StepPart:
    """A kind of data, in addition to the batch, that enters or leaves a replica's step.

    Examples are the tensors of a host_call and of evaluation metrics. A subclass overrides the
    methods that it needs. Some methods add ops to the step, which is the body of the TPU
    computation, and some to the host graph, which surrounds the computation. The methods are called
    in this order:

    1. `enqueue`, host graph: once for each replica, next to the enqueue of the replica's shard.
    2. `dequeue`, step: before model_fn.
    3. `step_ops` and `outfeed`, step: after model_fn.
    4. `host_ops`, host graph: if `outfeed` sends tensors. Once, or a second time for steps in which
       only some replicas have a batch; both calls share their variables.
    5. `hooks`, host graph: once.

    While the session runs, `receive` is called for each outfeed in the order of the steps.

    Attributes:
      name: key of the part's tensors in the outfeed; error messages show the name. Each part of a
        step has a different name.
    """

    name: str

    def enqueue(self, features: Any, labels: Any, replica: int) -> Any:
        """Build the op that feeds this part's data to a replica.

        Args:
          features: the features of the replica's shard, on the host.
          labels: the labels of the replica's shard, on the host; None without labels.
          replica: number of the replica.

        Returns:
          An op that runs once for each batch, or None.
        """
        return None

    def dequeue(self, batch: Batch) -> Batch:
        """Return the batch for model_fn, including the data that this part adds inside the step."""
        return batch

    def step_ops(self, spec: Any) -> Sequence[Any]:
        """Return further ops that each step runs on each replica.

        Args:
          spec: the EstimatorSpec or TPUEstimatorSpec that model_fn returned.
        """
        return ()

    def outfeed(self, spec: Any, batch: Batch) -> Any:
        """Return the tensors that each replica sends to the host.

        Args:
          spec: the EstimatorSpec or TPUEstimatorSpec that model_fn returned.
          batch: the batch that model_fn received.

        Returns:
          A nest of tensors with static shapes of rank 1 or more, or None. The host concatenates
          the replicas' tensors along the first dimension.
        """
        return None

    def host_ops(self, tensors: Any) -> Any:
        """Build the host's ops for the tensors of one outfeed.

        Args:
          tensors: nested as `outfeed` returned them; the tensors of all replicas are concatenated
            along the first dimension, without rows of padding.

        Returns:
          A nest of ops and tensors that the host runs for each outfeed; or None, if `receive` needs
          only the values of `tensors`.
        """
        return None

    def receive(self, values: Any) -> None:
        """Process the values of one outfeed. Called in the outfeed thread.

        Args:
          values: numpy values of the result of `host_ops` or, if that is None, of the tensors
            themselves.
        """

    def hooks(self) -> Sequence[Any]:
        """Return SessionRunHooks that the session needs for this part."""
        return ()
