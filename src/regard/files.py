"""Atomic file writes, and file errors as one-line messages."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Container, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from regard.errors import RegardError, format_os_error

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = ".unfinished"
"""Suffix of a file that is still being written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str] | None = None) -> None:
    """Write tensors to a safetensors file. Tensors that share memory are written separately."""
    write_bytes(path, serialize_tensors(tensors, header))


def serialize_tensors(tensors: Mapping[str, Tensor], header: dict[str, str] | None = None) -> bytes:
    """Return tensors as the content of a safetensors file."""
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, header)


def read_tensors(path: Path, device: str = "cpu", only: Container[str] | None = None) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file, or only those with the given names."""
    from safetensors import SafetensorError, safe_open

    try:
        with wrap_read_errors(path), safe_open(path, framework="pt", device=device) as file:
            names = file.keys() if only is None else [name for name in file.keys() if name in only]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise RegardError(f"{path} is corrupt: {error}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically. Symbolic links are followed; pipes and devices are written to directly."""
    with wrap_write_errors(path):
        path = Path(os.path.realpath(path))
        make_folder(path.parent)
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        with open_atomic(path) as file:
            file.write(content)


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is complete; remove it on failure."""
    unfinished = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            yield file
            flush(file)
        unfinished.replace(path)
        flush_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    with wrap_read_errors(path):
        return parse_json(path.read_bytes(), str(path))


def read_json_table(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise RegardError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def parse_json(content: str | bytes, location: str) -> Any:
    """Parse JSON; `location` names it in errors."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise RegardError(f"{location} is not valid JSON: {error}") from None


def check_file_version(content: Any, version: int, kind: str, location: str) -> None:
    """Raise a `RegardError` unless the content of a file has the given format version."""
    file_version = content.get("version") if isinstance(content, dict) else None
    if file_version != version:
        version_text = "none" if file_version is None else file_version
        raise RegardError(f"{location}: expected {kind} of version {version}, got {version_text}")


@contextlib.contextmanager
def wrap_os_errors(action: str, path: Path | str) -> Iterator[None]:
    """Raise a `RegardError` where the operating system refuses to read or write a file."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"cannot {action} {path}: {format_os_error(error)}") from None


wrap_read_errors, wrap_write_errors = partial(wrap_os_errors, "read"), partial(wrap_os_errors, "write")


def flush(file: IO[Any]) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Flush a folder to the disk, so that new names survive a crash, where the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they are missing, and flush their names to the disk."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        flush_folder(path.parent)


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    with wrap_read_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_checksum(path: Path, checksum: object) -> bool:
    """Return whether a file exists, can be read and has the checksum, which may be anything that a file contained."""
    try:
        return path.is_file() and compute_sha256(path) == checksum
    except (OSError, RegardError):
        return False
