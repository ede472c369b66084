"""Compile Triton programs for Hopper (sm_90) on a machine without a GPU, and report what they need of the chip.

`compile_launches(function)` calls a function in a new process, where a launch compiles its program and runs nothing.
The function is one of a module, takes no arguments, and launches programs on CPU tensors: types, alignment, constants
and block sizes are then those of the code under test. Most programs compile in a second or two.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
CAPABILITY = 90
MAX_SHARED = 227 * 1024  # bytes of shared memory that one program can have
MAX_REGISTERS = 65_536  # of all its threads, which have them in eights


@dataclass(frozen=True)
class CompiledProgram:
    """What one compiled program needs."""

    name: str
    constants: dict[str, str]
    warps: int
    registers: int  # of each thread, at most 255
    stack: int  # bytes of each thread in local memory: registers that were spilled, or arrays
    shared: int  # bytes


def compile_launches(function: Callable[[], object]) -> list[CompiledProgram]:
    """Return the programs that a function launches, compiled once for each set of types and constants."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", __name__, function.__module__, function.__qualname__]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [CompiledProgram(**program) for program in json.loads(done.stdout.splitlines()[-1])]


def check_resources(programs: list[CompiledProgram], stack: int = 0) -> None:
    """Assert that programs keep everything in registers, but for some bytes, and fit into shared memory."""
    assert programs
    for program in programs:
        assert program.stack <= stack, program
        assert -(-program.registers // 8) * 8 * 32 * program.warps <= MAX_REGISTERS, program
        assert program.shared <= MAX_SHARED, program


class HopperDriver:
    """A driver of one GPU that is not there, as far as compiling asks for it."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def record_launches(function: Callable[[], object]) -> list[CompiledProgram]:
    """Return the programs that a function launches, in this process, which cannot launch any other afterwards."""
    import triton

    programs: dict[str, CompiledProgram] = {}
    run = triton.JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        parts = [part for argument in args if isinstance(argument, tuple) for part in argument]
        assert not any(isinstance(part, tuple) for part in parts), "Triton 3.6 supports no tuples in tuples"
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        if kernel.hash not in programs:
            constants = {name: str(options[name]) for name in self.arg_names if name in options}
            programs[kernel.hash] = read_resources(self.fn.__name__, constants, kernel)

    triton.runtime.driver.set_active(HopperDriver())
    triton.JITFunction.run = compile_only
    function()
    return list(programs.values())


def read_resources(name: str, constants: dict[str, str], kernel: Any) -> CompiledProgram:
    """Return what a compiled program needs, as the disassembler that Triton ships reads it from its machine code."""
    import triton

    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "program.cubin"
        code.write_bytes(kernel.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(code)]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = {key: int(number) for key, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    metadata = kernel.metadata
    stack = numbers["STACK"] + numbers["LOCAL"]
    return CompiledProgram(name, constants, metadata.num_warps, numbers["REG"], stack, metadata.shared)


if __name__ == "__main__":
    module, function_name = sys.argv[1:]
    print(json.dumps([asdict(program) for program in record_launches(getattr(import_module(module), function_name))]))
