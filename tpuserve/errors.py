"""Every error that tpuserve, trainer and server raise on purpose, one class per situation.

A message says what was asked, what was found and what to do about it. Each class has one
canonical status code; `server.frontends.rest.errors` maps codes to HTTP and
`server.frontends.grpc.errors` to gRPC.
"""

from enum import Enum
from typing import ClassVar


class Code(Enum):
    """The canonical status codes. Source: google/rpc/code.proto."""

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
    """The root of the tree: catch it to catch whatever this project raises on purpose."""

    code: ClassVar[Code] = Code.UNKNOWN


# What a caller asked for in a way that can never work.


class InvalidInput(TpuserveError):
    """A request, argument or tensor that does not fit what was asked for."""

    code = Code.INVALID_ARGUMENT


class InvalidJson(InvalidInput):
    """A request body that is no JSON, or JSON of another form than the API's."""


class InvalidTensor(InvalidInput):
    """A tensor of a wrong type or shape, or one that cannot be decoded."""


class InvalidInputNames(InvalidInput):
    """Inputs missing from a request, or not known to the signature."""


class BatchTooLarge(InvalidInput):
    """A request with more rows than the largest batch may have."""


class LabelNotFound(InvalidInput):
    """A version label that no version of the model carries."""


class InvalidConfig(InvalidInput):
    """A configuration file or message that cannot be parsed, or asks for what cannot be."""


class InvalidSetting(InvalidInput, ValueError):
    """A flag, environment variable or constructor argument with an impossible value."""


class InvalidType(InvalidSetting, TypeError):
    """An argument of another type than it takes."""


class UnsupportedType(TpuserveError):
    """A tensor type that the requested encoding has no form for."""

    code = Code.UNIMPLEMENTED


class WrongContext(TpuserveError, RuntimeError):
    """Something asked where it has no answer: of input_fn's context in model_fn, or the reverse."""

    code = Code.FAILED_PRECONDITION


# What was asked for and is not there.


class NotFound(TpuserveError):
    """Something named by the caller does not exist."""

    code = Code.NOT_FOUND


class ModelNotFound(NotFound):
    """No model, or no version of it, by the name that was asked for."""


class SavedModelNotFound(NotFound):
    """No SavedModel in a directory."""


class BasePathNotFound(NotFound):
    """A model's base path is no directory that can be read."""


class VersionNotFound(NotFound):
    """No version directory below a model's base path."""


class MetagraphNotFound(NotFound):
    """A SavedModel has no metagraph with exactly the wanted tags."""


class SignatureNotFound(TpuserveError):
    """A metagraph has no signature of the wanted name."""

    code = Code.FAILED_PRECONDITION


class LabelNotAvailable(TpuserveError):
    """A label for a version that is not available."""

    code = Code.FAILED_PRECONDITION


class TpuNotFound(TpuserveError):
    """A TPU was asked for on a machine that has none, with no emulation asked for."""

    code = Code.FAILED_PRECONDITION


class CheckpointNotFound(NotFound, ValueError):
    """A trained model was asked for and its directory holds no checkpoint."""


class CheckpointMismatch(TpuserveError):
    """A checkpoint holds a variable in another shape than the model has it."""

    code = Code.FAILED_PRECONDITION


class ExtraNotInstalled(TpuserveError):
    """A part of tpuserve needs a package that only one of its extras installs."""

    code = Code.FAILED_PRECONDITION


class UnsupportedTensorFlow(TpuserveError, ImportError):
    """The installed TensorFlow lacks private names that tpuserve uses."""

    code = Code.FAILED_PRECONDITION


# What is there and cannot be used.


class DamagedSavedModel(TpuserveError):
    """A saved_model.pb that cannot be parsed or contradicts itself."""

    code = Code.DATA_LOSS


class DamagedWarmUp(TpuserveError):
    """A file of warm-up records that cannot be read as one."""

    code = Code.DATA_LOSS


class UnsafeModel(TpuserveError):
    """A model with ops that reach files, the network or Python, where those are forbidden."""

    code = Code.PERMISSION_DENIED


class UnsafePath(TpuserveError):
    """A path that leaves the directory that it is to stay in."""

    code = Code.PERMISSION_DENIED


class UnsupportedModel(TpuserveError):
    """A model, record or method of a kind that is not served."""

    code = Code.UNIMPLEMENTED


class WrongMethodName(TpuserveError):
    """A signature of another method than it is asked through."""

    code = Code.INTERNAL


class UnbatchableTensor(TpuserveError):
    """A tensor that cannot share a batch, or be taken apart after one."""

    code = Code.FAILED_PRECONDITION


class LoweringError(TpuserveError):
    """A TPU graph holds something that has no form on a CPU."""

    code = Code.UNIMPLEMENTED


class ExportError(TpuserveError, ValueError):
    """A model that cannot be exported as asked."""

    code = Code.FAILED_PRECONDITION


class ModelExecutionError(TpuserveError):
    """A model failed while it ran, through no fault of the request."""

    code = Code.INTERNAL


class TpuRunError(TpuserveError):
    """A run on a TPU that cannot go on."""

    code = Code.ABORTED


class UnsupportedOnTpu(TpuserveError):
    """A computation holds an op that the TPU's compiler has no form for."""

    code = Code.UNIMPLEMENTED


class ModelLoadError(TpuserveError):
    """A model version could not be loaded, for a reason that has no class of its own."""

    code = Code.INTERNAL


class ModelsNotAvailable(TpuserveError):
    """Models that were to be served, none or not all of which are available."""

    code = Code.UNKNOWN


# Who asks, how much, and how long it may take.


class Unauthenticated(TpuserveError):
    """A request without a key that is known."""

    code = Code.UNAUTHENTICATED


class TooManyRequests(TpuserveError):
    """More requests in flight than the server takes."""

    code = Code.RESOURCE_EXHAUSTED


class RequestTooLarge(TpuserveError):
    """A request of more bytes than the server takes."""

    code = Code.RESOURCE_EXHAUSTED


class DeadlineExceeded(TpuserveError):
    """A request that was not answered in the time that it was given."""

    code = Code.DEADLINE_EXCEEDED


class Cancelled(TpuserveError):
    """A request that whoever made it does not want answered any more."""

    code = Code.CANCELLED


class QueueFull(TpuserveError):
    """More requests waiting for a batch than may wait."""

    code = Code.UNAVAILABLE


class PortInUse(TpuserveError):
    """A port to listen on is taken."""

    code = Code.UNAVAILABLE


class Unavailable(TpuserveError):
    """The server cannot answer at the moment."""

    code = Code.UNAVAILABLE
