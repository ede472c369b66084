"""Settings of `regard serve`. The comment behind a field is the help of its option."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from regard.errors import RegardError
from regard.settings import setting

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Host names that reach only this machine."""

MINIMUMS = {"port": 0, "header_timeout": 0.1, "body_timeout": 0.1, "send_timeout": 0.1}
"""Minimums of the settings for which it is not 1."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Address and limits of a server."""

    host: str = "127.0.0.1"  # address to listen on; 0.0.0.0 listens on all network interfaces
    port: int = 8000  # port to listen on; 0 picks a free port
    max_bytes: int = 1_000_000  # maximum size of a request body in bytes
    max_characters: int = 10_000  # maximum length of a text in characters
    max_beam: int = 32  # maximum beam size a request can set
    max_tokens: int = 1_000  # maximum number of tokens generated per request
    timeout: float = 30.0  # seconds before a request fails
    header_timeout: float = 10.0  # seconds for the headers of a request to arrive
    body_timeout: float = 10.0  # seconds for the body of a request to arrive
    send_timeout: float = 10.0  # seconds for a client to receive each part of a response
    max_connections: int = 512  # maximum number of open connections; fewer if the limit of open files is low
    queue_size: int = 256  # open requests per model; more are rejected with status 503
    batch_size: int = 32  # maximum number of requests in a batch
    allow_hosts: tuple[str, ...] = ()  # additional host names accepted in the Host header
    token: str | None = setting(None, "no_option")  # bearer token that clients must send

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            minimum = MINIMUMS.get(field.name, 1)
            if isinstance(value, int | float) and not minimum <= value < math.inf:
                rule = f"at least {minimum}" if value < minimum else "a number"
                raise RegardError(f"--{field.name.replace('_', '-')} must be {rule}, got {value:g}")
        if self.port > 65535:
            raise RegardError(f"--port must be at most 65535, got {self.port}")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK
