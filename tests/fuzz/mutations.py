"""Mutations of bytes, JSON, TOML and tensors, driven by a random number generator."""

import copy
import json
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NASTY_BYTES = (
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"\xed\xa0\x80",  # a surrogate
    b"\r",
    b"\n\n\n",
    b"\t\t",
    b'"',
    b"\\",
    b"<!--",
    b"<!DOCTYPE tmx [<!ENTITY a 'b'>]>&a;",
    b"&x;",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"<a>" * 3000,
    b"9" * 5000,
    b"-1",
    b"1e999",
    b"nan",
    "\u2028\u0085\u202e".encode(),
)
NASTY_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    2**31,
    2**63,
    10**18,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e-300,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "0",
    "-",
    "mean",
    "\ud800",
    "\0",
    "../x",
    "a" * 5000,
    [],
    {},
    [[]],
    [0, 1],
    ["a"],
    {"kind": "x"},
    {"a": {"b": [1]}},
)
TOML_VALUES = (
    *("0", "-1", "1", "2", "1.5", "nan", "inf", "1e308", "true", '""', '"x"', "[]", "[1]", '["a", 1]', "{}"),
    *("9223372036854775807", "1" * 5000, "[" * 500, '"\\u0000"', "1979-05-27", '"../x"', "{a = 1}", "''''"),
)


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change bytes in one to three places, or replace them all."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(BYTE_MUTATIONS)(rng, content)
    return content


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 8) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randint(0, len(content))]


def cut(rng: random.Random, content: bytes) -> bytes:
    start, stop = sorted(rng.randint(0, len(content)) for _ in range(2))
    return content[:start] + content[stop:]


def duplicate(rng: random.Random, content: bytes) -> bytes:
    start, stop = sorted(rng.randint(0, len(content)) for _ in range(2))
    return content[:stop] + content[start:]


def splice(rng: random.Random, content: bytes) -> bytes:
    start, stop = sorted(rng.randint(0, len(content)) for _ in range(2))
    at = rng.randint(0, len(content))
    return content[:at] + content[start:stop] + content[at:]


def insert_nasty(rng: random.Random, content: bytes) -> bytes:
    at = rng.randint(0, len(content))
    return content[:at] + rng.choice(NASTY_BYTES) + content[at:]


def replace_number(rng: random.Random, content: bytes) -> bytes:
    """Replace four bytes by a number that is small, large or negative, as in tables of offsets."""
    if len(content) < 4:
        return content
    at = rng.randrange(len(content) - 3)
    number = rng.choice((0, 1, 7, 28, len(content), 2**31 - 1, 2**32 - 1))
    return content[:at] + struct.pack(rng.choice("<>") + "I", number) + content[at + 4 :]


def use_random_bytes(rng: random.Random, content: bytes) -> bytes:
    return rng.randbytes(rng.randint(0, 200))


BYTE_MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip_bits,
    truncate,
    cut,
    duplicate,
    splice,
    insert_nasty,
    replace_number,
    flip_bits,
    use_random_bytes,
)


def mutate_json(rng: random.Random, content: bytes) -> bytes:
    """Change some values or keys of JSON, or its bytes."""
    if rng.random() < 0.2:
        return mutate_bytes(rng, content)
    record = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        record = mutate_value(rng, record)
    text = json.dumps(record)
    if rng.random() < 0.03:
        text = text.replace(rng.choice(("1", '"a', "null")), "[" * 100_000, 1)
    return text.encode()


def mutate_value(rng: random.Random, record: Any) -> Any:
    """Change a random part of a JSON value."""
    parents = list_parents(record)
    if not parents or rng.random() < 0.02:
        return choose_nasty(rng)
    parent = rng.choice(parents)
    key = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    kind = rng.random()
    if kind < 0.6:
        parent[key] = choose_nasty(rng)
    elif kind < 0.7:
        del parent[key]
    elif kind < 0.8:
        other = rng.choice([each for each in parents if each] or [[0]])
        parent[key] = copy.deepcopy(rng.choice(list(other.values()) if isinstance(other, dict) else other))
    elif kind < 0.9 and isinstance(parent[key], (int, float)):
        parent[key] = rng.choice((parent[key] + 1, -parent[key], parent[key] * 1000, str(parent[key])))
    elif isinstance(parent, dict):
        parent[rng.choice(("x", "kind", "", f"{key}x"))] = parent.pop(key) if rng.random() < 0.5 else 1
    else:
        parent.insert(key, copy.deepcopy(parent[key]))
    return record


def choose_nasty(rng: random.Random) -> Any:
    """Return a value that nobody expects; a copy, since it may be changed later."""
    return copy.deepcopy(rng.choice(NASTY_VALUES))


def list_parents(record: Any) -> list[Any]:
    """Return all objects and lists of a JSON value that have elements."""
    found: list[Any] = []
    queue = [record]
    while queue and len(found) < 2000:
        value = queue.pop()
        if isinstance(value, (dict, list)) and value:
            found.append(value)
            queue += value.values() if isinstance(value, dict) else value
    return found


def mutate_toml(rng: random.Random, content: bytes) -> bytes:
    """Change values, names or lines of TOML, or its bytes."""
    if rng.random() < 0.15:
        return mutate_bytes(rng, content)
    lines = content.decode().splitlines()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        index = rng.randrange(len(lines))
        kind = rng.random()
        if kind < 0.7:
            lines[index] = re.sub(r"= .*", lambda _: f"= {rng.choice(TOML_VALUES)}", lines[index])
        elif kind < 0.8:
            lines[index] = re.sub(r"^\w", "x", lines[index])
        elif kind < 0.9:
            lines.insert(rng.randrange(len(lines)), lines[index])
        else:
            lines[index] = ""
    return "\n".join(lines).encode()


def mutate_tensors(rng: random.Random, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Change one tensor: its shape, type, name or values."""
    changed = dict(tensors)
    if not changed:
        return changed
    name = rng.choice(sorted(changed))
    kind = rng.randrange(10)
    if kind == 0:
        del changed[name]
    elif kind == 1:
        changed[f"{name}x"] = changed.pop(name)
    else:
        changed[name] = TENSOR_MUTATIONS[kind - 2](rng, changed[name]).contiguous().clone()
    return changed


DTYPES = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64)
TENSOR_MUTATIONS: tuple[Callable[[random.Random, Tensor], Tensor], ...] = (
    lambda rng, tensor: tensor.flatten(),
    lambda rng, tensor: tensor[None],
    lambda rng, tensor: tensor.to(rng.choice(DTYPES)),
    lambda rng, tensor: tensor[:0] if tensor.ndim else tensor.new_zeros(0),
    lambda rng, tensor: tensor.mT if tensor.ndim > 1 else tensor[..., None],
    lambda rng, tensor: torch.cat([tensor, tensor], -1) if tensor.ndim else tensor.expand(2),
    lambda rng, tensor: torch.full_like(tensor, rng.choice((0, 1, 100)) if tensor.dtype != torch.bool else 1),
    lambda rng, tensor: torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor[..., :1],
)
