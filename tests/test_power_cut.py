"""What a disk may hold after a power cut, and a few of the power cuts of `make torture`."""

import json
import random
import re
import subprocess
import sys

import pytest

from tests.power_cut import History, list_disks, list_versions


def test_a_disk_holds_the_last_flush_or_anything_since():
    versions = [(0, "a"), (3, "b"), (5, "c"), (8, "d")]
    assert list_versions(versions, [], 4, "") == ["", "a", "b"]
    assert list_versions(versions, [2, 4], 4, "") == ["a", "b"]  # the flush before operation 4 is still to come
    assert list_versions(versions, [2, 4], 5, "") == ["b", "c"]
    assert list_versions(versions, [9], 10, "") == ["d"]


def test_what_was_not_flushed_may_be_lost_or_torn():
    history = History(
        root=1,
        length=3,
        entries={1: [(0, {}), (1, {".file": 2}), (2, {"file": 2})]},
        contents={2: [(1, b"abcd")]},
    )

    def get_disks():
        return [json.dumps({name: str(data) for name, data in d.items()}) for d in list_disks(history, 2, draw)]

    draw = random.Random(1)
    disks = get_disks()
    assert disks[:4] == [
        """{"file": "b''"}""",  # renamed without its data
        r"""{"file": "b'ab\\x00\\x00'"}""",
        "{}",
        "{}",
    ]
    history.flushes = {2: [1]}
    assert set(get_disks()[:4]) == {"""{"file": "b'abcd'"}""", "{}"}
    history.flushes = {1: [0], 2: [1]}
    assert set(get_disks()[:4]) == {"""{"file": "b'abcd'"}""", "{}"}
    history.flushes = {1: [1], 2: [1]}
    assert set(get_disks()[:4]) == {"""{"file": "b'abcd'"}""", """{".file": "b'abcd'"}"""}


RECORD = """
import json, pathlib, sys
from tests.power_cut import Recorder, list_disks
from regard.files import write_bytes
import random

folder = pathlib.Path(sys.argv[1])
recorder = Recorder(folder)
if sys.argv[2] == "atomic":
    write_bytes(folder / "file", b"old")
    begin = recorder.history.length
    write_bytes(folder / "file", b"new")
else:
    (folder / "file").write_bytes(b"old")
    begin = recorder.history.length
    (folder / ".file").write_bytes(b"new")
    (folder / ".file").replace(folder / "file")
recorder.take_snapshot()
draw = random.Random(0)
found = {
    str(disk.get("file"))
    for now in range(begin + 1, recorder.history.length)
    for disk in list_disks(recorder.history, now, draw)
}
print(json.dumps(sorted(found)))
"""


@pytest.mark.parametrize("kind", ["atomic", "plain"])
def test_an_atomic_write_leaves_the_old_or_the_new_file(tmp_path, kind):
    result = subprocess.run([sys.executable, "-c", RECORD, tmp_path, kind], capture_output=True, text=True, check=True)
    left = set(json.loads(result.stdout))
    if kind == "atomic":
        assert left == {"b'old'", "b'new'"}
    else:
        assert {"None", "b''", r"b'n\x00\x00'"} <= left


@pytest.mark.slow
def test_a_power_cut_loses_nothing_that_was_saved():
    result = subprocess.run(
        [sys.executable, "-m", "tests.power_cut", "--cases", "pairs", "--every", "12", "--resumes", "4"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    summary = re.search(r"(\d+) different disks, of which 4 were trained on to the end; 0 problems", result.stdout)
    assert summary is not None
    assert int(summary[1]) > 40
