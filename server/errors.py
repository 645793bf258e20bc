"""The errors that only a server can have, beside those of `tpuserve.errors`."""

from tpuserve.errors import Code, NotFound, TpuserveError


class BasePathNotFound(NotFound):
    """A model's base path is no directory that can be read."""


class ModelLoadError(TpuserveError):
    """A model version could not be loaded, for a reason its loader has no error class for."""

    code = Code.INTERNAL
