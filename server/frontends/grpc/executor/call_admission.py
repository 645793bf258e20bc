"""Admits gRPC calls whose message has arrived, within the limits on requests and on memory."""

from server.admission.admission import AdmissionController
from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.process.thread_pool import ThreadPool


class AdmittedCall:
    """The record of an admitted call.

    The call counts towards the limits on requests and on memory until `release` is called.
    """

    __slots__ = ("_controller", "_peer_name", "memory")

    def __init__(
        self, controller: AdmissionController | None, peer_name: str, memory: MemoryReservation
    ) -> None:
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
    """Admits or refuses the calls of one gRPC method."""

    def __init__(
        self,
        controller: AdmissionController | None,
        budget: MemoryBudget,
        rejection_pool: ThreadPool,
    ) -> None:
        self._controller = controller
        self._budget = budget
        self.rejection_pool = rejection_pool

    def admit(self, message: bytes, peer_name: str) -> AdmittedCall:
        """Admit a call whose message has arrived, or raise an error.

        Raises:
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
