"""The implementation of a parsed request for bodies that a parse process parses."""

from collections.abc import Mapping, Sequence

from server.codec import requests
from server.codec.open_inference.infer_request import InferInput, InferRequest
from server.codec.requests import Arrays
from server.parsing import messages
from server.parsing.memory_estimate import estimate_memory_bytes
from server.parsing.messages import Buffer, Header
from server.parsing.parse_process import ParseProcess
from server.parsing.parsed_request import merge_context
from server.parsing.process_pool import ParseProcessPool
from server.request import RequestContext
from tpuserve.errors import TpuserveError, Unavailable
from tpuserve.saved_model.signature import Signature


class RemoteRequest:
    """A `ParsedRequest` that a parse process parses. `close` returns the process to its pool.

    If the request is cancelled, as at its deadline, the process is killed, because a parser
    cannot be interrupted. A later request then starts a new process.
    """

    def __init__(
        self, process: ParseProcess, processes: ParseProcessPool, context: RequestContext
    ) -> None:
        self._process = process
        self._processes = processes
        self._context = context
        self._estimated_bytes = 0
        self.is_closed = False
        self.signature_name = ""
        self.is_row_format = False

    @property
    def pid(self) -> int:
        """The ID of the parse process."""
        return self._process.pid

    def parse(self, body: bytes) -> None:
        """Parse the JSON body of the request, and set the attributes of `ParsedRequest`."""
        self._reserve_for_parsing(body)
        answer, _ = self._call("parse", [body])
        self.signature_name = answer["signature_name"]
        self.is_row_format = answer["is_row_format"]

    def decode_inputs(self, signature: Signature) -> Arrays:
        """Decode the inputs of a predict request, as in `ParsedRequest.decode_inputs`."""
        dtypes = {alias: spec.dtype for alias, spec in signature.inputs.items()}
        answer, buffers = self._call("inputs", dtypes=dtypes)
        return self._receive_arrays(answer["arrays"], buffers)

    def decode_infer_request(self, body: bytes) -> InferRequest:
        """Parse and decode an infer request of the Open Inference Protocol, and close the request.

        Raises:
          TpuserveError: The body is invalid; the errors are those of
            `RequestParser.parse_infer_request`.
        """
        self._reserve_for_parsing(body)
        answer, buffers = self._call("infer", [body])
        request = InferRequest(**answer["request"])
        return request._replace(
            inputs=tuple(
                InferInput(name, datatype, tuple(shape), num_bytes)
                for name, datatype, shape, num_bytes in request.inputs
            ),
            arrays=self._receive_arrays(answer["arrays"], buffers),
        )

    def decode_examples(self) -> list[bytes]:
        """Decode the examples of a request, as in `ParsedRequest.decode_examples`."""
        _, (context, *buffers) = self._call("examples")
        separate = messages.unpack_strings(buffers)
        merged = merge_context(bytes(context), separate, self._context)
        self.close()
        return merged

    def close(self) -> None:
        """Free the parsed values in the process, and return the process to its pool."""
        if self.is_closed:
            return
        try:
            self._call("drop")
        except TpuserveError:
            return  # The parse process has ended, so `_call` has closed this request already.
        self._close(self._process)

    def _reserve_for_parsing(self, body: bytes) -> None:
        if self._context.memory is not None:
            # Reserve memory for the body too, because the parse process gets a copy of it.
            estimated_bytes = len(body) + estimate_memory_bytes(body)
            self._context.reserve(estimated_bytes)
            self._estimated_bytes = estimated_bytes

    def _receive_arrays(
        self, descriptions: Mapping[str, Header], buffers: list[bytearray]
    ) -> Arrays:
        arrays = {
            alias: messages.unpack_array(description, buffers)
            for alias, description in descriptions.items()
        }
        self._context.reserve(requests.count_bytes(arrays))
        self.close()
        return arrays

    def _call(
        self, operation: str, buffers: Sequence[Buffer] = (), **arguments: object
    ) -> tuple[Header, list[bytearray]]:
        process, cancellation = self._process, self._context.cancellation
        cancellation.add_callback(process.kill)
        try:
            return process.call(operation, buffers, **arguments)
        except (EOFError, OSError) as error:
            process.close()
            self._close(None)
            cancellation.raise_if_cancelled()
            raise Unavailable(
                "the process that parsed the request has ended. Send the request again."
            ) from error
        finally:
            cancellation.remove_callback(process.kill)

    def _close(self, process: ParseProcess | None) -> None:
        self.is_closed = True
        self._processes.release(process)
        if self._context.memory is not None:
            self._context.memory.shrink(self._estimated_bytes)
            self._estimated_bytes = 0
