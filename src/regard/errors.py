"""What a user can put right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

NO_MEMORY = "there is not enough memory; try smaller batches, shorter texts or a smaller model"


class RegardError(Exception):
    """Bad input: the message says where, what was found, and what would be right.

    The command line prints it in one line and exits with status 2; every other
    exception is a bug of ours.
    """


def unknown_name(what: str, found: object, known: Iterable[str]) -> RegardError:
    """The error for a name that is not in a list, with the nearest one that is."""
    names = sorted(known)
    near = get_close_matches(str(found), names, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else f"; there are: {', '.join(names)}"
    return RegardError(f'{what}: there is no "{found}"{hint}')


def refuse_less(where: str, least: int, **values: int) -> None:
    """Raise a `RegardError` for a value that is less."""
    for name, value in values.items():
        if value < least:
            raise RegardError(f"{where}: {name} is {value}; {least} is the least")


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch found no memory: on a GPU it has a class of its own for that, on a CPU only words."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
