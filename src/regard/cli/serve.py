"""`regard serve`: models behind HTTP, and a page to look inside them."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.cli.devices import chosen_device
from regard.cli.options import with_settings
from regard.errors import RegardError
from regard.serve.settings import ServeSettings

TOKEN = "REGARD_TOKEN"


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
    """Answer over HTTP, and show a page that looks inside the models; the address is printed, Ctrl-C stops.

    Args:
        run: A run folder made by regard train.
        runs: Further ones; two can be compared on the page.
        allow_hosts: A further name that requests to this machine itself may be addressed to; may be given several
            times.
        token_file: A file with the token that clients must show; the environment variable REGARD_TOKEN unless set,
            and none without both.
        device: auto, cpu, cuda, cuda:1.
        given: What the server allows.
    """
    check_installed()
    settings = ServeSettings(allow_hosts=allow_hosts, token=known_token(token_file), **given)
    from regard.serve.server import serve as serve_until_stopped

    serve_until_stopped((run, *runs), settings, chosen_device(device))


def check_installed() -> None:
    """Raise a `RegardError` where there is nothing to serve with."""
    if not all(find_spec(name) for name in ("fastapi", "uvicorn")):
        raise RegardError("regard serve needs FastAPI and uvicorn: pip install 'regard[serve]'")


def known_token(file: Path | None) -> str | None:
    """The token of a file, or of the environment, or none."""
    if file is None:
        where, token = TOKEN, os.environ.get(TOKEN)
        if token is None:
            return None
    else:
        where = f"--token-file {file}"
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise RegardError(f"{where}: cannot be read: {reason}") from None
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise RegardError(f"{where}: holds no token; letters, digits and signs without spaces are needed")
    return token
