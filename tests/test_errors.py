"""The wording of errors that all packages share."""

import errno

import numpy as np
import pytest
import torch

from regard.errors import RegardError, format_json, format_os_error, is_out_of_memory, refuse_less, unknown_name


@pytest.mark.parametrize(
    ("subject", "line"),
    [
        ("score", 'unknown score "dott"; did you mean "dot"?'),
        ("explain: label", 'explain: unknown label "dott"; did you mean "dot"?'),
        ("file or built-in corpus", 'unknown file or built-in corpus "dott"; did you mean "dot"?'),
        ("--cell", '--cell: unknown value "dott"; did you mean "dot"?'),
        ("de.toml: [model] score", 'de.toml: [model] unknown score "dott"; did you mean "dot"?'),
        ("de.toml: [model] setting", 'de.toml: unknown setting "dott" in [model]; did you mean "dot"?'),
        ("copy: setting", 'copy: unknown setting "dott"; did you mean "dot"?'),
    ],
)
def test_an_unknown_name_is_named_with_its_kind_and_location(subject, line):
    assert str(unknown_name(subject, "dott", ["dot", "additive"])) == line


def test_tasks_and_settings_of_other_programs_are_named_as_ours():
    assert str(unknown_name("a.toml: [data] task", "classification", ["label", "tag"])) == (
        'a.toml: [data] unknown task "classification"; did you mean "label"?'
    )
    assert str(unknown_name("model", "lstm", ["lstm-lm"], "use bahdanau")) == 'unknown model "lstm"; use bahdanau'


def test_without_a_close_name_all_are_listed():
    assert str(unknown_name("score", "x", ["dot", "additive"])) == 'unknown score "x"; choose from additive, dot'


def test_a_value_below_its_minimum_is_refused():
    refuse_less("Crf", 1, tags=1)
    with pytest.raises(RegardError, match=r"^Crf: tags must be at least 1, got 0$"):
        refuse_less("Crf", 1, tags=0)


def test_reasons_of_the_system_are_short():
    assert format_os_error(FileNotFoundError(errno.ENOENT, "No such file or directory")) == "not found"
    assert format_os_error(OSError(errno.ENOSPC, "No space left on device")) == "no space left on device"
    assert format_os_error(OSError("no number")) == "no number"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_memory_that_ran_out_is_known_by_its_errors(error, expected):
    assert is_out_of_memory(error) is expected


def test_memory_that_torch_and_numpy_do_not_get_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**58)
    assert is_out_of_memory(caught.value)
    with pytest.raises(MemoryError) as refused:
        np.empty(2**58)
    assert is_out_of_memory(refused.value)


def test_sizes_beyond_any_memory_are_out_of_memory():
    for make in (
        lambda: torch.empty(2**62, 2**10),
        lambda: torch.empty(2**64),
        lambda: bytearray(2**62),
        lambda: np.zeros(2**59),
    ):
        with pytest.raises((MemoryError, RuntimeError, TypeError)) as error:
            make()
        assert is_out_of_memory(error.value)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_values_in_messages_are_short_ascii():
    assert format_json({"a": "é\ud800"}) == r'{"a": "\u00e9\ud800"}'
    assert format_json("x" * 100, 10) == '"xxxxxxxx…'
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert format_json(nested) == "a deeply nested list"
