"""Files: whole or not there, whatever the disk does."""

import errno
import hashlib
import os
import re
import stat
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from regard.errors import RegardError
from regard.files import (
    compute_sha256,
    flush_folder,
    parse_json,
    read_json,
    read_tensors,
    wrap_read_errors,
    wrap_write_errors,
    write_bytes,
    write_tensors,
    write_text,
)


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def test_a_file_is_written_whole_with_its_folder(tmp_path):
    write_text(tmp_path / "a" / "b" / "text", "ä\n")
    assert (tmp_path / "a" / "b" / "text").read_bytes() == b"\xc3\xa4\n"
    assert os.listdir(tmp_path / "a" / "b") == ["text"]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_disk_that_fails_leaves_the_old_file(tmp_path, monkeypatch, broken):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    write_text(path, "old")
    monkeypatch.setattr(*((Path, "replace", full) if broken == "replace" else (os, "fsync", full)))
    with refused(f"cannot write {path}: no space left on device"):
        write_text(path, "new")
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_text() == "old"


def test_a_crash_before_the_renaming_leaves_the_old_file(tmp_path, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt  # as when the process dies: nothing is put in order

    write_text(tmp_path / "file", "old")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    write_text(tmp_path / "file", "newer")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "newer"


def test_what_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(f"cannot write {tmp_path}/file/x: not a directory"):
        write_text(tmp_path / "file" / "x", "")
    with refused(f"cannot write {tmp_path}: is a directory"):
        write_text(tmp_path, "")


def test_links_are_followed(tmp_path):
    (tmp_path / "link").symlink_to("there")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "text"


def test_a_pipe_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(tmp_path / "pipe", b"text")
    assert os.read(reader, 9) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_tensors_are_read_back_as_they_were(tmp_path):
    whole = torch.arange(6.0).reshape(2, 3)
    tensors = {
        "a": whole,
        "tied": whole,
        "turned": whole.T,
        "row": whole[1],
        "half": whole.bfloat16(),
        "n": whole.sum(),
    }
    write_tensors(tmp_path / "t", tensors)
    for read in (read_tensors(tmp_path / "t"), load_file(tmp_path / "t")):
        assert read.keys() == tensors.keys()
        assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    assert list(read_tensors(tmp_path / "t", only={"row", "odd"})) == ["row"]
    write_tensors(tmp_path / "t", {})
    assert read_tensors(tmp_path / "t") == {}


@given(st.binary(max_size=60), st.integers(0, 200), st.booleans())
def test_damaged_tensors_are_one_clear_line(tmp_path_factory, junk, index, cut):
    path = tmp_path_factory.mktemp("damaged") / "t"
    write_tensors(path, {"weight": torch.ones(3, 2), "bias": torch.zeros(2)})
    whole = path.read_bytes()
    path.write_bytes(whole[:index] + junk + (b"" if cut else whole[index + len(junk) :]))
    try:
        read_tensors(path)
    except RegardError as error:
        assert str(error).startswith(f"{path} is corrupt: ")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


def test_tensors_that_are_not_there(tmp_path):
    with refused(f"cannot read {tmp_path}/t: not found"):
        read_tensors(tmp_path / "t")


@given(st.binary(max_size=300))
def test_the_checksum_is_that_of_the_content(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("sum") / "file"
    path.write_bytes(content)
    assert compute_sha256(path) == hashlib.sha256(content).hexdigest()


def test_what_has_no_checksum(tmp_path):
    with refused(f"cannot read {tmp_path}/none: not found"):
        compute_sha256(tmp_path / "none")
    with refused(f"cannot read {tmp_path}: is a directory"):
        compute_sha256(tmp_path)


@pytest.mark.parametrize(("guard", "action"), [(wrap_read_errors, "read"), (wrap_write_errors, "write")])
def test_only_what_the_disk_refuses_is_said_in_our_words(guard, action):
    with refused(f"cannot {action} a: permission denied"), guard(Path("a")):
        raise OSError(errno.EACCES, "Permission denied")
    with refused(f"cannot {action} a: without a number"), guard(Path("a")):
        raise OSError("without a number")
    with pytest.raises(ValueError, match=r"^not the disk$"), guard(Path("a")):
        raise ValueError("not the disk")


def test_a_folder_that_cannot_be_flushed_is_no_error(tmp_path):
    flush_folder(tmp_path)
    flush_folder(tmp_path / "none")


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    text = "maximum recursion depth exceeded while decoding a JSON array from a unicode string"
    with refused(f"{tmp_path}/deep.json is not valid JSON: {text}"):
        read_json(tmp_path / "deep.json")
    with pytest.raises(RegardError, match=r"^line 3 is not valid JSON: maximum recursion depth exceeded"):
        parse_json('{"a":' * 100_000, "line 3")
