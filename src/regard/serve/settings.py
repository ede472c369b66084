"""Settings of `regard serve`. The comment behind a field is the help of its option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.bounds import Bounds, check_bounds
from regard.settings import setting

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Host names that reach only this machine."""

ClientSeconds = Annotated[float, Bounds(0.1, 86_400)]
Connections = Annotated[int, Bounds(1, 1_000_000)]


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Address and limits of a server."""

    host: str = "127.0.0.1"  # address to listen on; 0.0.0.0 listens on all network interfaces
    port: Annotated[int, Bounds(0, 65_535)] = 8000  # port to listen on; 0 picks a free port
    max_bytes: Annotated[int, Bounds(1, 1_000_000_000)] = 1_000_000  # maximum size of a request body in bytes
    max_characters: Annotated[int, Bounds(1, 100_000_000)] = 10_000  # maximum length of a text in characters
    max_beam: Annotated[int, Bounds(1, 1000)] = 32  # maximum beam size a request can set
    max_tokens: Annotated[int, Bounds(1, 1_000_000)] = 1_000  # maximum number of tokens generated per request
    timeout: Annotated[float, Bounds(1, 86_400)] = 30.0  # seconds before a request fails
    header_timeout: ClientSeconds = 10.0  # seconds for the headers of a request to arrive
    body_timeout: ClientSeconds = 10.0  # seconds for the body of a request to arrive
    send_timeout: ClientSeconds = 10.0  # seconds for a client to receive each part of a response
    max_connections: Connections = 512  # maximum number of open connections; fewer if the limit of open files is low
    queue_size: Annotated[int, Bounds(1, 1_000_000)] = 256  # open requests per model; more are rejected with status 503
    batch_size: Annotated[int, Bounds(1, 100_000)] = 32  # maximum number of requests in a batch
    allow_hosts: tuple[str, ...] = ()  # additional host names accepted in the Host header
    token: str | None = setting(None, "no_option")  # bearer token that clients must send

    def __post_init__(self) -> None:
        check_bounds(self, "--")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK
