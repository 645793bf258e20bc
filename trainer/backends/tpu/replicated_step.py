"""Builds the step that all replicas run, with its infeed and outfeed.

A step is one training, evaluation or prediction step: it runs model_fn on one batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.backends.tpu import tpu_loop
from trainer.backends.tpu.host_parts import StepPart
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.transfer.infeed_outfeed_hook import InfeedOutfeedHook
from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.backends.tpu.transfer.outfeed_results import (
    MASK,
    OutfeedReceiver,
    PaddedOutfeedReceiver,
    UnpaddedOutfeedReceiver,
)
from trainer.hooks.training_hooks import SummaryWritersHook
from trainer.infeed.final_batch_padding import FinalBatchPadding
from trainer.model.model_program import TPUModelProgram
from trainer.tensorflow_internals import summary_ops_v2


@dataclass(frozen=True)
class ConnectedStep:
    """The tensors and hooks with which the host runs the loop of a `ReplicatedStep`.

    Attributes:
      infeed_outfeed_hook: drives infeed and outfeed. Pass the number of steps to its
        `send_next_batch_signal` before each run of the loop.
    """

    done: Any
    receiver: OutfeedReceiver
    infeed_outfeed_hook: Any
    hooks: tuple[Any, ...]


class ReplicatedStep:
    """Builds the step of a mode, such as training, for all replicas, and the loop that runs it.

    Call `build_loop` once, which builds the TPU computation, and then `connect` once, which builds
    the ops that feed the loop and receive its results on the host.

    Attributes:
      iterations: int32 placeholder []: the number of steps that a run of the loop makes.

    Args:
      input_fn: the user's function that returns a Dataset, or tensors.
      parts: the data that enters or leaves each step beside the batch; see `StepPart`.
      padding: the policy for batches with fewer examples than the batch size; None refuses
        such batches.
      steps: the number of global batches to feed; None for all. Ignored if `padding` is None.
      outfeed_every_n_steps: a number n. Of every n steps of a loop, only the first sends
        tensors to the host.
    """

    def __init__(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        context: TpuModeContext,
        parts: Sequence[StepPart],
        *,
        padding: FinalBatchPadding | None = None,
        steps: int | None = None,
        outfeed_every_n_steps: int = 1,
    ) -> None:
        self._context = context
        self._parts = parts
        self._program, self.infeed = context.build_infeed(
            program, input_fn, padding=padding, steps=steps
        )
        self._outfeed_every_n_steps = max(outfeed_every_n_steps, 1)
        self.outfeed = Outfeed(context.topology)
        self.iterations: Any = None
        self.spec: Any = None

    def build_loop(self) -> Any:
        """Build the loop of steps on all replicas."""
        self.iterations = tf.compat.v1.placeholder_with_default(1, [], name="iterations")
        _, done = tpu_loop.build_tpu_loop(
            self._build_step,
            self.iterations,
            self._context.topology,
            self._program.device_assignment,
        )
        return done

    def connect(
        self,
        done: Any,
        *,
        make_hook: Callable[..., Any] | None = None,
        waits_for_results: bool = False,
        sleep_secs: float = 0.0,
    ) -> "ConnectedStep":
        """Build the ops and hooks with which the host feeds the loop and receives its outfeed.

        Args:
          make_hook: takes the arguments of `InfeedOutfeedHook` and returns the hook that drives
            infeed and outfeed; None for `InfeedOutfeedHook` itself.
          sleep_secs: the delay before the first batch is fed, in seconds.
        """
        runtime, topology = self._context.runtime, self._context.topology
        is_padded = self.outfeed.is_used and MASK in self.outfeed.template
        received: list[Any] = []
        if self.outfeed.is_used:
            received = self.outfeed.dequeue() if is_padded else self.outfeed.dequeue_concatenated()
        targets = [done, self.infeed.enqueue, *tf.nest.flatten(received)]
        prepared = runtime.prepare_targets(targets, topology)
        done, enqueue, *received = prepared.targets
        receiver: OutfeedReceiver
        if is_padded:
            receiver = PaddedOutfeedReceiver(
                self.outfeed,
                topology,
                self._parts,
                received,
                has_full_batches=self.infeed.has_full_batches,
                has_only_full_steps=self.infeed.has_only_full_steps,
            )
        else:
            receiver = UnpaddedOutfeedReceiver(self.outfeed, self._parts, received)
        every_n_steps = self._outfeed_every_n_steps
        hook = (make_hook or InfeedOutfeedHook)(
            self.infeed,
            enqueue,
            self._context.rendezvous,
            results=receiver.fetches,
            on_result=receiver.receive,
            results_per_loop=lambda steps: -(-steps // every_n_steps),
            waits_for_results=waits_for_results,
            end_infeed=prepared.end_infeeds,
            end_outfeed=prepared.end_outfeeds,
            sleep_secs=sleep_secs,
        )
        # The writers that model_fn or a host_call's function has created: only the session can
        # initialize them, before the first step.
        writers = [SummaryWritersHook()] if summary_ops_v2.summary_writer_initializer_op() else []
        return ConnectedStep(done, receiver, hook, (*writers, *self.infeed.hooks, hook))

    def _build_step(self, done: Any) -> Any:
        """Build one step inside the TPU computation; return the op that runs the step."""
        batch = self.infeed.dequeue()
        for part in self._parts:
            batch = part.dequeue(batch)
        self.spec = self._program.call_model_fn(
            batch.features, batch.labels, self._context.topology.mode
        )
        operations = [operation for part in self._parts for operation in part.step_ops(self.spec)]
        tensors = {part.name: part.outfeed(self.spec, batch) for part in self._parts}
        tensors = {name: nest for name, nest in tensors.items() if nest is not None}
        if batch.mask is not None:
            tensors[MASK] = batch.mask
        if tf.nest.flatten(tensors):
            operations.append(self._build_outfeed(tensors, done))
        return tf.group(*operations)

    def _build_outfeed(self, tensors: Any, done: Any) -> Any:
        if self._outfeed_every_n_steps == 1:
            return self.outfeed.enqueue(tensors)

        def enqueue() -> Any:
            with tf.control_dependencies([self.outfeed.enqueue(tensors)]):
                return tf.constant(True)

        is_due = tf.equal(done % self._outfeed_every_n_steps, 0)
        return tf.cond(is_due, enqueue, lambda: tf.constant(False))
