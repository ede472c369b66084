"""`regard serve`: serve runs over HTTP, with a page that shows their attention."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.cli.devices import resolve_device
from regard.cli.options import with_settings
from regard.cli.threads import with_threads
from regard.errors import RegardError
from regard.serve.settings import ServeSettings

TOKEN = "REGARD_TOKEN"


@with_threads
@with_settings(ServeSettings)
def serve(
    run: Path,
    /,
    *runs: Path,
    allow_hosts: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    token_file: Path | None = None,
    device: str = "auto",
    **given: Any,
) -> None:
    """Serve runs over HTTP, with a page that shows their attention; prints the address, Ctrl-C stops.

    Args:
        run: Run folder made by regard train.
        runs: More runs; the page can compare two.
        allow_hosts: Additional host name that requests to the loopback address may use; can be repeated.
        token_file: File with the bearer token that clients must send; the environment variable REGARD_TOKEN by
            default, no token without both.
        device: auto, cpu, cuda or cuda:1.
        given: Limits of the server.
    """
    check_serve_installed()
    settings = ServeSettings(allow_hosts=allow_hosts, token=read_token(token_file), **given)
    from regard.serve.server import serve as serve_until_stopped

    serve_until_stopped((run, *runs), settings, resolve_device(device))


def check_serve_installed() -> None:
    """Raise a `RegardError` if FastAPI or uvicorn is not installed."""
    if not all(find_spec(name) for name in ("fastapi", "uvicorn")):
        raise RegardError("regard serve requires FastAPI and uvicorn: pip install fastapi uvicorn")


def read_token(file: Path | None) -> str | None:
    """Return the token of a file or of the environment, or None."""
    if file is None:
        location, token = TOKEN, os.environ.get(TOKEN)
        if token is None:
            return None
    else:
        location = f"--token-file {file}"
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise RegardError(f"{location}: cannot be read: {reason}") from None
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise RegardError(f"{location}: expected a token of printable ASCII characters without spaces")
    return token
