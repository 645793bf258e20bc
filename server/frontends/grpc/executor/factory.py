"""Chooses the class of the thread pool that runs gRPC calls."""

import logging
import sys

import grpc

from server.frontends.grpc.executor import grpcio_compat
from server.frontends.grpc.executor.call_executor import CallExecutor
from server.frontends.grpc.executor.default_thread_pool import DefaultThreadPool
from server.frontends.grpc.executor.stalled_calls import StalledCallLimits
from server.scheduling.request_queues import RequestQueues

logger = logging.getLogger(__name__)


def create_call_executor(
    max_concurrent_calls: int,
    queues: RequestQueues | None = None,
    default_timeout_ms: float | None = None,
    *,
    max_pending_bytes: int = sys.maxsize,
    allow_direct_polling: bool = True,
) -> CallExecutor:
    """Create the fastest executor that the installed grpcio supports.

    Args:
      max_concurrent_calls: the largest number of calls that run at the same time.
      queues: the queue of each model, in which calls wait until they may run; None for queues that
        no other frontend shares.
      default_timeout_ms: the milliseconds in which a call without a deadline must be answered; None
        for no limit.
      max_pending_bytes: the largest total size, in bytes, of request messages that have not arrived
        completely. Only the parts that have arrived count.
      allow_direct_polling: whether the executor may use grpcio's private API to poll for events in
        its own threads.

    Returns:
      A CompletionQueueThreadPool if `grpcio_compat` finds that the installed grpcio supports one;
      else a DefaultThreadPool.
    """
    limits = StalledCallLimits(max_pending_bytes=max_pending_bytes)
    if not allow_direct_polling:
        return DefaultThreadPool(max_concurrent_calls, limits, queues, default_timeout_ms)
    if grpcio_compat.supports_direct_polling():
        from server.frontends.grpc.executor.cq_thread_pool import CompletionQueueThreadPool

        return CompletionQueueThreadPool(max_concurrent_calls, limits, queues, default_timeout_ms)
    logger.warning(
        "grpcio %s has other internals than this server knows. The gRPC frontend works, but "
        "answers small requests more slowly. Install grpcio 1.72.1 to 1.85 for full speed.",
        grpc.__version__,
    )
    return DefaultThreadPool(max_concurrent_calls, limits, queues, default_timeout_ms)
