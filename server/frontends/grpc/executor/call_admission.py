"""Admits gRPC calls whose message has arrived, within the limits on requests and on memory."""

from server.admission.admission import AdmissionController
from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.process.thread_pool import ThreadPool


class AdmittedCall:
    """The record of an admitted call.

    The call counts towards the limits on requests and on memory until `release` is called.

    Attributes:
      memory: the call's reservation in the memory budget. At first it has the size of the message.
    """

    __slots__ = ("_controller", "_peer_name", "memory")

    def __init__(
        self, controller: AdmissionController | None, peer_name: str, memory: MemoryReservation
    ) -> None:
        """Create the record of a call that is already counted as in flight.

        Args:
          controller: the controller that has counted the call; None if no controller limits calls.
          peer_name: the name of the client, from `peers.peer_name`.
          memory: the call's reservation in the memory budget.
        """
        self._controller = controller
        self._peer_name = peer_name
        self.memory = memory

    def release(self) -> None:
        """Count the call as no longer in flight, and release its memory.

        Must be called exactly once.
        """
        self.memory.release()
        if self._controller is not None:
            self._controller.release(self._peer_name)


class CallAdmission:
    """Admits or refuses the calls of one gRPC method.

    Attributes:
      rejection_pool: the thread pool that sends the error to the clients of refused calls.
    """

    def __init__(
        self,
        controller: AdmissionController | None,
        budget: MemoryBudget,
        rejection_pool: ThreadPool,
    ) -> None:
        """Create the admission control of a method.

        Args:
          controller: limits the calls in flight; None for no limit.
          budget: bounds the memory of all requests together.
          rejection_pool: the thread pool that sends the error to the clients of refused calls.
        """
        self._controller = controller
        self._budget = budget
        self.rejection_pool = rejection_pool

    def admit(self, message: bytes, peer_name: str) -> AdmittedCall:
        """Admit a call whose message has arrived, or raise an error.

        Args:
          message: the message, whose bytes count as memory of the call.
          peer_name: the name of the client, from `peers.peer_name`.

        Raises:
          ShuttingDown: the server is draining.
          CodedError: there are too many calls in flight, or too many of this client.
          RequestTooLarge: the message alone is larger than the memory budget.
          MemoryBudgetExceeded: all requests together would need more memory than the budget has.
        """
        memory = self._budget.reserve(len(message))
        try:
            if self._controller is not None:
                self._controller.acquire(peer_name)
        except BaseException:
            memory.release()
            raise
        return AdmittedCall(self._controller, peer_name, memory)
