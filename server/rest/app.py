"""The FastAPI application: routes, and what they call."""

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from server.dataplane import DataPlane
from server.rest import errors, models, paths, predict
from tpuserve.errors import InvalidInput, TpuserveError

_MODEL = "/v1/models/{name:model_name}"
_VERSION = _MODEL + "/versions/{version:digits}"


def build(dataplane: DataPlane) -> FastAPI:
    """The application that answers from a data plane."""
    paths.register()
    app = FastAPI(title="tpuserve", redirect_slashes=False)
    app.add_middleware(paths.RawPath)
    app.add_exception_handler(TpuserveError, errors.on_tpuserve_error)
    app.add_exception_handler(HTTPException, errors.on_no_route)
    app.add_exception_handler(Exception, errors.on_unexpected_error)
    _add_predict(app, dataplane)
    _add_status(app, dataplane)
    return app


def _add_predict(app: FastAPI, dataplane: DataPlane) -> None:
    # Bodies are read raw: to have a framework look at each number costs more than most models.
    async def answer(request: Request, name: str, version: int | None) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response(status_code=499)  # nobody is there to read it
        reply = await run_in_threadpool(predict.predict, dataplane, name, version, body)
        return Response(reply, media_type="application/json")

    @app.post(_MODEL + ":predict", summary="Predict with the latest version")
    async def predict_latest(request: Request, name: str) -> Response:
        return await answer(request, name, None)

    @app.post(_VERSION + ":predict", summary="Predict with one version")
    async def predict_version(request: Request, name: str, version: str) -> Response:
        return await answer(request, name, paths.parse_version(version))


def _add_status(app: FastAPI, dataplane: DataPlane) -> None:
    def answer(name: str, version: int | None) -> Response:
        body = models.encode_status(dataplane.status(name, version))
        return Response(body, media_type="application/json")

    @app.get("/v1/models", include_in_schema=False)
    async def no_name() -> Response:
        raise InvalidInput("Missing model name in request.")

    @app.get(_MODEL, summary="Status of a model's versions")
    async def status(name: str) -> Response:
        return answer(name, None)

    @app.get(_VERSION, summary="Status of one version")
    async def status_of_version(name: str, version: str) -> Response:
        return answer(name, paths.parse_version(version))
