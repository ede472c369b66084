"""What a server allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from regard.errors import RegardError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names under which only this machine is reached."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Where a server listens, and how much a client may ask of it."""

    host: str = "127.0.0.1"  # the address to listen on
    port: int = 8000  # 0 takes one that is free
    allow_hosts: tuple[str, ...] = ()  # further names that a request to the loopback may be addressed to
    token: str | None = None  # what a client must show as its bearer token
    most_bytes: int = 1_000_000  # of a request
    most_characters: int = 10_000  # of a text
    most_beam: int = 32  # hypotheses of a search
    most_tokens: int = 1_000  # that are written for a request
    seconds: float = 30.0  # that a request may take
    queue: int = 256  # requests of a model that wait or are worked on
    batch: int = 32  # requests that are worked on together

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "port" else 1
            if isinstance(value, int | float) and not least <= value < math.inf:
                rule = f"{least} is the least" if value < least else "a number is needed"
                raise RegardError(f"--{field.name.replace('_', '-')} is {value:g}; {rule}")
        if self.port > 65535:
            raise RegardError(f"--port is {self.port}; 65535 is the greatest")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK
