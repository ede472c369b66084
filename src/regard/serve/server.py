"""Run the server: socket, signals and graceful shutdown."""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from regard.errors import RegardError
from regard.serve.app import create_app
from regard.serve.connections import ACCEPTED_AT_ONCE, build_connection_class
from regard.serve.log import log
from regard.serve.security import Guard
from regard.serve.served_models import ModelPool, name_runs
from regard.serve.settings import ServeSettings

STOP_SECONDS = 5.0
"""Timeout for the workers at shutdown."""

BACKLOG = 2048
"""Connections that the system holds until the server accepts them."""


def serve(runs: Sequence[Path], settings: ServeSettings, device: str = "cpu") -> None:
    """Serve runs until SIGINT or SIGTERM. Prints the address once the models are loaded.

    Requests are accepted while the models load, so that /health and /ready tell the state of the server.
    """
    pool = ModelPool(runs=name_runs(runs))
    errors: list[BaseException] = []
    with open_socket(settings) as listening_socket:
        warn_if_open(settings)

        def load_models() -> None:
            try:
                pool.load(device, settings)
            except BaseException as error:
                errors.append(error)
                server.should_exit = True
            if server.should_exit:  # failed, or stopped while loading
                return
            log("listening", models=list(pool.models), token=settings.token is not None, local=settings.local)
            print(format_address(listening_socket, settings), flush=True)

        loading = threading.Thread(target=load_models, name="regard-loading", daemon=True)
        server = Server(build_config(create_app(pool, settings), settings), loading.start)
        with ignore_signals():
            server.run(sockets=[listening_socket])
        loading.join(STOP_SECONDS)
        pool.stop(STOP_SECONDS)
        if errors:
            raise errors[0]
        log("stopped")


def build_config(app: Guard, settings: ServeSettings) -> uvicorn.Config:
    """Return the configuration of uvicorn: connections with limits, no logs of its own, no WebSockets."""
    return uvicorn.Config(
        app,
        http=build_connection_class(settings, app.metrics),
        ws="none",
        log_config=None,
        log_level="critical",  # `Guard` logs requests and errors
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=math.ceil(settings.timeout),
    )


def warn_if_open(settings: ServeSettings) -> None:
    """Warn if other machines can reach the server and need no token."""
    if not settings.local and settings.token is None:
        message = f"anyone who can reach {settings.host} can use the models: no token is set; see --token-file"
        log("warning", message=message)


class Server(uvicorn.Server):
    """A uvicorn server with a callback for its start."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], object]) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening_socket in sockets or ():
            listening_socket.listen(BACKLOG)  # asyncio has set it to the number of connections to accept at once
        self.on_start()


@contextmanager
def open_socket(settings: ServeSettings) -> Iterator[socket.socket]:
    """Open the listening socket, or raise `RegardError`."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening_socket = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        unknown_host = isinstance(error, socket.gaierror)  # its errno is not one of the OS
        reason = error.strerror if unknown_host else os.strerror(error.errno or 0)
        raise RegardError(f"cannot listen on {settings.host}, port {settings.port}: {reason}") from None
    with listening_socket:
        yield listening_socket


def format_address(listening_socket: socket.socket, settings: ServeSettings) -> str:
    """Return the URL of the server."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listening_socket.getsockname()[1]}/"


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM, which uvicorn raises again after its shutdown."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: None) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
