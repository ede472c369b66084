"""Run the server: socket, signals and graceful shutdown."""

from __future__ import annotations

import math
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from regard.errors import RegardError
from regard.serve.app import create_app
from regard.serve.log import log
from regard.serve.served_models import serve_runs
from regard.serve.settings import ServeSettings

STOP_SECONDS = 5.0
"""Timeout for the workers at shutdown."""


def serve(runs: Sequence[Path], settings: ServeSettings, device: str = "cpu") -> None:
    """Serve runs until SIGINT or SIGTERM. Prints the address once the server accepts requests."""
    with open_socket(settings) as listening_socket:
        models = serve_runs(runs, device, settings)
        config = uvicorn.Config(
            create_app(models, settings),
            log_config=None,
            log_level="critical",  # `Guard` logs requests and errors
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=math.ceil(settings.timeout),
        )

        def on_start() -> None:
            print(format_address(listening_socket, settings), flush=True)
            log("listening", models=list(models), token=settings.token is not None, local=settings.local)

        with ignore_signals():
            Server(config, on_start).run(sockets=[listening_socket])
        for model in models.values():
            model.worker.stop(STOP_SECONDS)
        log("stopped")


class Server(uvicorn.Server):
    """A uvicorn server with a callback for its start."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], object]) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_start()


@contextmanager
def open_socket(settings: ServeSettings) -> Iterator[socket.socket]:
    """Open the listening socket, or raise `RegardError`."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening_socket = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
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
