"""Memory: what a model needs is counted before it is built."""

import re

import pytest
import torch
from torch import nn

from regard import memory
from regard.errors import RegardError
from regard.memory import (
    check_memory,
    count_parameter_bytes,
    format_bytes,
    get_available_memory,
    on_meta_device,
    read_available_memory,
    read_cgroup_memory,
)
from regard.models import build

GIGABYTE = 10**9


def test_a_model_on_the_meta_device_has_the_shapes_of_the_real_one_and_no_memory():
    sizes = {"source_vocab_size": 11, "target_vocab_size": 13, "width": 8, "heads": 2}
    with on_meta_device():
        model = build("transformer", **sizes)
    assert all(parameter.is_meta for parameter in model.parameters())
    shapes = {name: tensor.shape for name, tensor in build("transformer", **sizes).state_dict().items()}
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == shapes
    assert nn.Linear(2, 3).weight.device.type == "cpu"  # outside, everything is as before


def test_bytes_are_those_of_parameters_and_buffers():
    model = nn.BatchNorm1d(5)  # weight and bias; mean, variance and a counter of 8 bytes
    model.bias.requires_grad = False
    assert count_parameter_bytes(model) == 4 * 5 * 4 + 8
    assert count_parameter_bytes(model, trainable=True) == 5 * 4


def test_more_than_there_is_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "get_available_memory", lambda device: 12 * GIGABYTE)
    check_memory(12 * GIGABYTE, "parameters", "cpu", "lower model.hidden")
    for device, kind in (("cpu", "memory"), ("cuda", "GPU memory")):
        text = f"model needs about 31 GB for parameters; 12 GB of {kind} are available; lower model.hidden"
        with pytest.raises(RegardError, match=f"^{re.escape(text)}$"):
            check_memory(31 * GIGABYTE, "parameters", device, "lower model.hidden")
    monkeypatch.setattr(memory, "get_available_memory", lambda device: None)
    check_memory(10**20, "parameters", "cpu", "")


def test_sizes_are_shown_in_gigabytes():
    assert [format_bytes(size) for size in (3_640_000_000, 31 * GIGABYTE, 10**13)] == ["3.6 GB", "31 GB", "10,000 GB"]


def test_the_system_says_what_is_available(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:  24684100 kB\nMemFree:  1 kB\nMemAvailable:  20290992 kB\n")
    assert read_available_memory(path) == 20290992 * 1024
    assert read_available_memory(tmp_path / "none") is None or read_available_memory(tmp_path / "none") > 0
    available = get_available_memory()
    assert available is None or available > 0
    assert get_available_memory("meta") is None


@pytest.mark.parametrize(
    ("membership", "folder", "files"),
    [
        ("0::/\n", "", {"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 1\ninactive_file 500\n"}),
        (
            "3:cpu:/\n0::/jobs/one\n",
            "jobs/one",
            {"memory.max": "5000", "memory.current": "3000", "memory.stat": "inactive_file 500\n"},
        ),
        (
            "4:memory:/box\n0::/\n",
            "memory/box",
            {
                "memory.limit_in_bytes": "5000",
                "memory.usage_in_bytes": "3000",
                "memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
            },
        ),
    ],
)
def test_a_control_group_limits_memory(tmp_path, membership, folder, files):
    (tmp_path / "cgroup").write_text(membership)
    group = tmp_path / "root" / folder
    group.mkdir(parents=True)
    for name, content in files.items():
        (group / name).write_text(content)
    assert read_cgroup_memory(tmp_path / "cgroup", tmp_path / "root") == 2500


def test_a_control_group_without_a_limit_limits_nothing(tmp_path):
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert read_cgroup_memory(tmp_path / "cgroup", tmp_path) is None
    assert read_cgroup_memory(tmp_path / "none", tmp_path) is None


def test_torch_says_what_is_free_on_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9))
    assert get_available_memory("cuda:1") == 7
