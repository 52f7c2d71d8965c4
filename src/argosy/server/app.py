"""The application: the routers together, and every error as the API says it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException

import argosy
from argosy.errors import ArgosyError, Broken, InputError, NotFound
from argosy.server import groups, sessions, streams, volumes
from argosy.server.answers import answer, refusal, unexpected
from argosy.server.context import Context
from argosy.server.infra import routes as infra


def application(context: Context) -> FastAPI:
    """The API of one server."""
    app = FastAPI(
        title="Argosy",
        version=argosy.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        exception_handlers={
            ArgosyError: _ours,
            RequestValidationError: _invalid,
            HTTPException: _plain,
            Exception: _any,
        },
    )
    app.add_exception_handler(WebSocketRequestValidationError, _invalid_session)
    app.state.context = context
    for one in (infra, groups, streams, sessions, volumes):
        app.include_router(one.router)
    return app


async def _ours(_: Request, error: Exception) -> Response:
    return refusal(unexpected(error))


async def _any(_: Request, error: Exception) -> Response:
    return refusal(unexpected(error))


async def _invalid(_: Request, error: Exception) -> Response:
    return refusal(_wrong(error))


async def _invalid_session(socket: WebSocket, error: Exception) -> None:
    await socket.send_denial_response(refusal(_wrong(error)))


def _wrong(error: Exception) -> InputError:
    """A query or a body that does not fit: the first thing that is wrong with it."""
    found: list[dict[str, Any]] = list(getattr(error, "errors", list)())
    first = found[0] if found else {"loc": (), "msg": "not valid"}
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return InputError(
        f"{where}: {first['msg']}",
        code="server/request",
        hint="docs/api.md has the forms of every request",
    )


async def _plain(request: Request, error: Exception) -> Response:
    """A path or a method that is not there."""
    status = getattr(error, "status_code", 500)
    if status in (404, 405):
        text = f"there is no {request.method} {request.url.path}"
        return answer(
            NotFound(text, code="server/no-such-path", hint="see docs/api.md").fields(), status
        )
    return answer(Broken(str(getattr(error, "detail", error))).fields(), status)
