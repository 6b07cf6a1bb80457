"""A policy as a service over HTTP: `POST /act`, sessions for policies with a memory, `/health` and `/metrics`."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.blame import told
from rl_training.errors import ConfigError, import_extra
from rl_training.experiment.files import cause_of
from rl_training.runtime.opening import load_policy
from rl_training.runtime.stopping import active
from rl_training.tools.serving import Limits, PolicyService, TooManySessions, UnknownSession
from rl_training.tools.wire import JSON, MSGPACK, decode, encode

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_CONNECTIONS = 1_000
TOO_LARGE, WRONG_TYPE, UNKNOWN, BUSY, BAD, BROKEN = 413, 415, 404, 429, 400, 500

_log = logging.getLogger(__name__)


class Refusal(ConfigError):
    """A request that is answered with an HTTP status of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def service_for(run: Path | str, *, which: str | int = "latest", trust: bool = False, limits: Limits) -> PolicyService:
    """The service of a run's policy; no environment is made, and nothing that a received run names is imported."""
    return PolicyService(load_policy(run, which=which, trust=trust), limits)


def make_app(service: PolicyService, hosts: tuple[str, ...] = LOOPBACK) -> Any:
    """The web application. It answers to the given host names only, unless one of them is `*`."""
    fastapi = import_extra("fastapi", extra="serve")
    trusted = import_extra("starlette.middleware.trustedhost", extra="serve").TrustedHostMiddleware
    app = fastapi.FastAPI(lifespan=_working(service), docs_url=None, redoc_url=None, openapi_url=None)
    # A page of another origin that resolves its own name to this machine does not name it so.
    app.add_middleware(trusted, allowed_hosts=list(hosts))
    answered = _answering(service)

    async def act(request: Any) -> dict[str, Any]:
        return await service.act(decode(await _body(request, service.limits.body_bytes), _content_type(request)))

    async def begin(request: Any) -> dict[str, Any]:
        _content_type(request)
        return {"session": service.begin_session()}

    async def end(request: Any) -> dict[str, Any]:
        service.end_session(request.path_params["session"])
        return {}

    async def spaces(request: Any) -> dict[str, Any]:
        return {"observation": str(service.policy.spaces.observation), "action": str(service.policy.spaces.action)}

    async def health(request: Any) -> dict[str, Any]:
        return {"status": "ok"}

    async def metrics(request: Any) -> Any:
        return fastapi.responses.PlainTextResponse(metrics_text(service), media_type="text/plain; version=0.0.4")

    app.add_route("/act", answered(act, counted=True), methods=["POST"])
    app.add_route("/sessions", answered(begin), methods=["POST"])
    app.add_route("/sessions/{session}", answered(end), methods=["DELETE"])
    app.add_route("/spaces", answered(spaces), methods=["GET"])
    app.add_route("/health", answered(health), methods=["GET"])
    app.add_route("/metrics", metrics, methods=["GET"])
    return app


def metrics_text(service: PolicyService) -> str:
    """The counts and latencies of a service, as Prometheus reads them."""
    lines = [f"rl_training_{name}_total {count}" for name, count in service.counts.items()]
    lines.append(f"rl_training_sessions {len(service.sessions)}")
    if service.latencies:
        for quantile in (0.5, 0.99):
            seconds = np.quantile(np.array(service.latencies), quantile)
            lines.append(f'rl_training_request_seconds{{quantile="{quantile}"}} {seconds:.6f}')
    return "\n".join(lines) + "\n"


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at the address; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(MOST_CONNECTIONS)  # whoever is told the address may connect at once
        except OSError as error:
            raise ConfigError(f"cannot listen at {host}:{port}: {cause_of(error)}; choose another --port") from error
        yield bound


def run_app(app: Any, bound: socket.socket) -> None:
    """Serves the application until a signal comes."""
    uvicorn = import_extra("uvicorn", extra="serve")

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
        """One that leaves signals to the process, which has handlers of its own."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    server = Server(config)

    def stop(_signal: str) -> None:
        server.should_exit = True

    with active().asking(stop):
        server.run(sockets=[bound])


def _working(service: PolicyService) -> Callable[[Any], Any]:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(service.work())
        yield
        task.cancel()

    return lifespan


def _answering(service: PolicyService) -> Callable[..., Any]:
    """Turns a function that returns a message into one that returns a response, whatever goes wrong."""
    responses = import_extra("starlette.responses", extra="serve")

    def answering(function: Callable[[Any], Awaitable[dict[str, Any]]], *, counted: bool = False) -> Any:
        async def endpoint(request: Any) -> Any:
            service.counts["requests"] += counted
            try:
                message, status = await function(request), 200
            except ConfigError as error:
                message, status = {"error": str(error)}, _status(error)
            except Exception as error:  # noqa: BLE001  # a network, perhaps the user's own
                _log.error("a request failed: %s", told(error))
                message, status = {"error": "the policy failed; the server's log says why"}, BROKEN
            service.counts["errors"] += status != 200
            kind = MSGPACK if request.headers.get("accept") == MSGPACK else JSON
            return responses.Response(encode(message, kind), status_code=status, media_type=kind)

        return endpoint

    return answering


def _status(error: ConfigError) -> int:
    if isinstance(error, Refusal):
        return error.status
    return {TooManySessions: BUSY, UnknownSession: UNKNOWN}.get(type(error), BAD)


def _content_type(request: Any) -> str:
    """A type that a page of another origin cannot send without asking first."""
    kind = str(request.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind not in (JSON, MSGPACK):
        raise Refusal(WRONG_TYPE, f"send {JSON} or {MSGPACK} as the content type")
    return kind


async def _body(request: Any, most: int) -> bytes:
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise Refusal(TOO_LARGE, f"the body has more than {most:,} bytes (--max-body)")
        parts.append(chunk)
    return b"".join(parts)
