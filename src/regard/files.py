"""Files that are whole or not there, and whatever a disk refuses said in one line."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = ".unfinished"
"""How the name of a file ends that is not whole yet."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str] | None = None) -> None:
    """Tensors as a safetensors file; those that share memory are each written out."""
    from safetensors.torch import save

    apart = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, save(apart, header))


def read_tensors(path: Path, device: str = "cpu", only: Container[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, all or those of some names."""
    from safetensors import SafetensorError, safe_open

    try:
        with reading(path), safe_open(path, framework="pt", device=device) as file:
            names = file.keys() if only is None else [name for name in file.keys() if name in only]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise RegardError(f"{path}: is damaged ({error}); restore it from a copy") from None


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing; a link is followed, and what is no file, as a pipe, is written to as it is."""
    with writing(path):
        path = Path(os.path.realpath(path))
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        unfinished = path.with_name(f".{path.name}{UNFINISHED}")
        try:
            with unfinished.open("wb") as file:
                file.write(content)
                flush(file)
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        flush_folder(path.parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the disk refuses as a `RegardError`."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever the disk refuses as a `RegardError`."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror or error}") from None


def flush(file: IO[Any]) -> None:
    """Bring what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Bring a folder's new names to the disk, where the disk can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
