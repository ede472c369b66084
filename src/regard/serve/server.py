"""The server itself: a socket, signals, and an end at which nobody is cut off."""

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
from regard.serve.app import application
from regard.serve.log import log
from regard.serve.served import serve_runs
from regard.serve.settings import ServeSettings

STOP_SECONDS = 5.0
"""That a model may still work when all clients are gone."""


def serve(runs: Sequence[Path], settings: ServeSettings, device: str = "cpu") -> None:
    """Serve runs until a signal comes. The address is printed once requests, and signals, are heard."""
    with listener(settings) as own:
        models = serve_runs(runs, device, settings)
        config = uvicorn.Config(
            application(models, settings),
            log_config=None,
            log_level="critical",  # what is to be said, the guard says
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=math.ceil(settings.seconds),
        )

        def begun() -> None:
            print(address_of(own, settings), flush=True)
            log("listening", models=list(models), token=settings.token is not None, local=settings.local)

        with quiet_signals():
            Server(config, begun).run(sockets=[own])
        for model in models.values():
            model.worker.stop(STOP_SECONDS)
        log("stopped")


class Server(uvicorn.Server):
    """A server that says when it has begun."""

    def __init__(self, config: uvicorn.Config, begun: Callable[[], object]) -> None:
        super().__init__(config)
        self.begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun()


@contextmanager
def listener(settings: ServeSettings) -> Iterator[socket.socket]:
    """A socket that listens where the settings say."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        own = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        unnamed = isinstance(error, socket.gaierror)  # whose numbers are others
        reason = error.strerror if unnamed else os.strerror(error.errno or 0)
        raise RegardError(f"cannot listen on {settings.host}, port {settings.port}: {reason}") from None
    with own:
        yield own


def address_of(own: socket.socket, settings: ServeSettings) -> str:
    """What to type into a browser."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{own.getsockname()[1]}/"


@contextmanager
def quiet_signals() -> Iterator[None]:
    """Let the signals that end the server end nothing else: it sends them on to itself when it has stopped."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: None) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
