"""Defines the errors that this project raises on purpose.

The packages tpuserve, trainer and server raise them. A message states what was requested, what was
found, and what to do. Each error has a canonical status code.
"""

from enum import Enum


class Code(Enum):
    """The canonical status codes of gRPC, as in google/rpc/code.proto."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class TpuserveError(Exception):
    """The base class of all errors that this project raises on purpose."""

    code: Code = Code.UNKNOWN

    @property
    def text_for_operators(self) -> str:
        """The text with its notes, for logs and terminals. Clients get the text without notes.

        Notes, added with `add_note`, tell what clients must not know, such as names of files.
        """
        return " ".join([str(self), *getattr(self, "__notes__", ())])


class CodedError(TpuserveError):
    """An error that no caller tells from others by its class, but by its code."""

    def __init__(self, message: str, code: Code = Code.UNKNOWN) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


# Errors about invalid requests, arguments and settings.


class InvalidInput(TpuserveError):
    """A request, an argument or a tensor is not valid."""

    code = Code.INVALID_ARGUMENT


class InvalidJson(InvalidInput):
    """The body of a request, or a line of an input file, is not JSON or has a wrong form."""


class InvalidTensor(InvalidInput):
    """A tensor has a wrong dtype or shape, or cannot be decoded."""


class InvalidInputNames(InvalidInput):
    """A request lacks inputs, or has inputs that the signature does not have."""


class InvalidConfig(InvalidInput):
    """A server's configuration file, or a configuration in a request, is not valid."""


class MalformedConfig(InvalidConfig):
    """A configuration file cannot be parsed as a protobuf message in text format."""


class InvalidSetting(InvalidInput, ValueError):
    """A flag, an environment variable or an argument has an invalid value."""


class InvalidType(InvalidSetting, TypeError):
    """An argument has a wrong type."""


class MissingKey(InvalidSetting, KeyError):
    """A dict lacks an input of a Keras model, or names an output that the model does not have."""

    def __str__(self) -> str:
        # Return the plain message. KeyError.__str__ would put it in quotes, as a string literal.
        return str(self.args[0]) if self.args else ""


class WrongContext(TpuserveError, RuntimeError):
    """A function or property is used too early or too late, or in code that must not use it."""

    code = Code.FAILED_PRECONDITION


# Errors about requested models, versions, files and devices that do not exist.


class NotFound(TpuserveError):
    """A model, version, file or other object that was requested does not exist."""

    code = Code.NOT_FOUND


class ModelNotFound(NotFound):
    """No model has the requested name, or the model does not have the requested version."""


class BasePathNotFound(NotFound):
    """The base path of a model, which holds its versions, is not a readable directory."""


class VersionNotFound(NotFound):
    """The base path of a model has no version directory, or none of the requested versions."""


class MetagraphNotFound(NotFound):
    """A SavedModel has no metagraph with exactly the requested tags."""


class SignatureNotFound(TpuserveError):
    """A metagraph has no signature with the requested name."""

    code = Code.FAILED_PRECONDITION


class LabelNotAvailable(TpuserveError):
    """A version label is to be assigned to a version that is not available."""

    code = Code.FAILED_PRECONDITION


class TpuNotFound(TpuserveError):
    """No TPU, real or emulated, is found, or the TPU has too few cores for the program."""

    code = Code.FAILED_PRECONDITION


class HostMissing(TpuserveError):
    """A program runs on several hosts, and a host did not connect to the other hosts in time."""

    code = Code.DEADLINE_EXCEEDED


class HostLost(TpuserveError):
    """Another host of a program has ended, or has failed at a task that it ran for all hosts."""

    code = Code.ABORTED


class HostsDiffer(TpuserveError):
    """A program runs on several hosts, and they differ in settings, inputs or calls."""

    code = Code.FAILED_PRECONDITION


class StepNotCounted(TpuserveError, RuntimeError):
    """The train_op of a model_fn does not increment the global step."""

    code = Code.FAILED_PRECONDITION


class CheckpointNotFound(NotFound, ValueError):
    """A checkpoint that a method needs does not exist."""


class CheckpointMismatch(TpuserveError):
    """A checkpoint lacks variables of the model, or has them with other shapes."""

    code = Code.FAILED_PRECONDITION


class ExtraNotInstalled(TpuserveError):
    """A package of an extra, such as plot, is missing or has an unsupported version."""

    code = Code.FAILED_PRECONDITION


class UnsupportedVersion(TpuserveError, ImportError):
    """The installed TensorFlow, Keras or httpx lacks private names that this project uses."""

    code = Code.FAILED_PRECONDITION


# Errors about models, files and devices that exist and cannot be used.


class DamagedSavedModel(TpuserveError):
    """A SavedModel or a TensorFlow Lite model cannot be read or parsed, or is inconsistent."""

    code = Code.DATA_LOSS


class ModelFileRefused(CodedError):
    """A file of Keras cannot be made a SavedModel, now or later, unless the file changes."""


class UnsafeModel(TpuserveError):
    """A model has forbidden ops: ops that can do more than compute, for example open files."""

    code = Code.PERMISSION_DENIED


class ForeignRequest(TpuserveError):
    """A browser has sent a request for a page of another site, or to a name that is not allowed."""

    code = Code.PERMISSION_DENIED


class ModelTooLarge(TpuserveError):
    """A model needs more memory, or has more nodes or files, than the server accepts."""

    code = Code.RESOURCE_EXHAUSTED


class UnsupportedModel(TpuserveError):
    """A model, a signature, a warm-up record or a call is of a kind that is not supported."""

    code = Code.UNIMPLEMENTED


class LoweringError(TpuserveError):
    """A TPU graph has an op that cannot be lowered, that is, replaced by ops with CPU kernels."""

    code = Code.UNIMPLEMENTED


class ExportError(TpuserveError, ValueError):
    """A model cannot be exported as requested."""

    code = Code.FAILED_PRECONDITION


class StringsOnTpu(ExportError):
    """A computation that is to run on the TPU takes, makes or returns strings."""


class ModelExecutionError(CodedError):
    """The run of a model failed, and no check of ours found the request to be the cause.

    Its code is that of the op that failed.
    """

    def __init__(self, message: str, code: Code = Code.INTERNAL) -> None:
        super().__init__(message, code)


class DeviceMemoryExhausted(TpuserveError):
    """A device has too little memory for the variables or for a run of a model."""

    code = Code.RESOURCE_EXHAUSTED


class UnsupportedOnTpu(TpuserveError):
    """A computation has an op, a variable or another part that cannot run on TPU devices."""

    code = Code.UNIMPLEMENTED


class UncompilableStep(TpuserveError):
    """RunConfig.compile_step asks XLA to compile a training step, and XLA cannot compile it."""

    code = Code.UNIMPLEMENTED


class ModelsNotAvailable(TpuserveError):
    """At the start of the server, not all of its configured models became available."""

    code = Code.UNKNOWN


class ReloadSuperseded(ModelsNotAvailable):
    """Another reload has replaced a configuration before its models were available."""

    code = Code.ABORTED


# Errors about authentication, limits and deadlines.


class Unauthenticated(TpuserveError):
    """A request has no valid API key."""

    code = Code.UNAUTHENTICATED


class MemoryBudgetExceeded(TpuserveError):
    """All requests in flight together would need more memory than the server allows for them."""

    code = Code.RESOURCE_EXHAUSTED


class RequestTooLarge(TpuserveError):
    """A request has more bytes or fields, or needs more memory, than the server accepts."""

    code = Code.RESOURCE_EXHAUSTED


class DeadlineExceeded(TpuserveError):
    """A request was not answered before its deadline."""

    code = Code.DEADLINE_EXCEEDED


class Cancelled(TpuserveError):
    """The client has cancelled a request, or the server has cancelled a download."""

    code = Code.CANCELLED


class QueueFull(TpuserveError):
    """A request is refused, because the queue of its model or the batching queue is full."""

    code = Code.UNAVAILABLE


class Unavailable(TpuserveError):
    """The server cannot answer now; a later request may succeed.

    Attributes:
      retry_after_s: the time in seconds that a client should wait before it sends the request
        again.
    """

    code = Code.UNAVAILABLE
    retry_after_s: float | None = 0.0


class ShuttingDown(Unavailable):
    """The server is about to stop, and refuses new requests."""


# Errors that `tpuserve.client` raises for responses of a server or problems of the connection. For
# other responses, the client raises classes above, such as InvalidInput, NotFound and Unavailable.


class ServerUnreachable(Unavailable):
    """No server answers at an address, or the connection broke."""


class LimitReached(TpuserveError):
    """A server refuses a request because of one of its limits.

    Attributes:
      retry_after_s: the time in seconds that a client should wait before it sends the request
        again; None if the request itself exceeds the limit, so that a retry is useless.
    """

    code = Code.RESOURCE_EXHAUSTED
    retry_after_s: float | None = None


class PermissionDenied(TpuserveError):
    """A server does not allow a client to do what was requested."""

    code = Code.PERMISSION_DENIED


class Conflict(TpuserveError):
    """A server has stopped a request that conflicts with another request or the server's state."""

    code = Code.ABORTED


class UnsupportedCall(TpuserveError):
    """A server does not offer the API, the method or the kind of model that a client requests."""

    code = Code.UNIMPLEMENTED


class ServerFailure(TpuserveError):
    """A server has failed to answer a request, and the request is not the cause."""

    code = Code.INTERNAL


class InvalidReply(ServerFailure):
    """The answer of a server does not have the form that its API defines."""


# Errors of the server process that `tpuserve.serve` or `tpuserve analyse` starts.


class ServerNotStarted(TpuserveError):
    """A server process has ended before it was ready, or has not become ready in time."""

    code = Code.FAILED_PRECONDITION
