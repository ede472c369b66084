"""What a server allows.

The remark behind a setting is the help of its option.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from regard.errors import RegardError
from regard.settings import setting

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names under which only this machine is reached."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Where a server listens, and how much a client may ask of it."""

    host: str = "127.0.0.1"  # The address to listen on; 0.0.0.0 is all of this machine's.
    port: int = 8000  # 0 takes one that is free.
    most_bytes: int = 1_000_000  # Of a request.
    most_characters: int = 10_000  # Of a text.
    most_beam: int = 32  # Hypotheses of a search.
    most_tokens: int = 1_000  # Tokens that are written for a request.
    seconds: float = 30.0  # That a request may take.
    queue: int = 256  # Requests of a model that wait or are worked on; further ones are refused for now.
    batch: int = 32  # Requests that are worked on together.
    allow_hosts: tuple[str, ...] = ()  # further names that a request to the loopback may be addressed to
    token: str | None = setting(None, "no_option")  # what a client must show as its bearer token

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
