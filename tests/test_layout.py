"""The layout of the design: a module imports only from lines above its own."""

import ast
import importlib
import subprocess
import sys

import pytest

import regard
from docs.layout import BEGIN, COLUMN, END, ORDER, ROOT, SOURCE, draw_map, name_of, place

DOWN = {  # imports that must point down: from where, to where, and why
    ("attention.weights", "attention.archive"): "save and load of Weights read safetensors only when they are called",
    ("attention.weights", "attention.scaled_weights"): "weights make weights of other classes",
    ("views.attention_map", "views.matrix"): "a map draws itself; what draws is imported only then",
    ("views.attention_map", "views.page"): "a map draws itself; what draws is imported only then",
    ("views.attention_map", "views.svg.views"): "a map draws itself; what draws is imported only then",
    ("views.attention_map", "views.terminal"): "a map draws itself; what draws is imported only then",
}

HEART = {"torch", "jaxtyping", "regard"}
HEART_MAY = {
    "attention/archive.py": {"safetensors"},  # loaded when weights are saved, not before
    "attention/kernels/triton/dot_programs.py": {"triton"},  # loaded where Triton can run
    "attention/kernels/triton/additive_programs.py": {"triton"},
    "attention/kernels/triton/distance_programs.py": {"triton"},
    "attention/kernels/triton/distance_half_programs.py": {"triton"},
    "attention/kernels/triton/rule_programs.py": {"triton"},
}


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imported(tree: ast.AST) -> set[str]:
    result = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            result |= {name if is_module(name) else node.module for name in names}
    return result


def test_imports_point_up():  # those inside functions too
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(files) >= 200
    down = set()
    for path in files:
        name = name_of(path)
        if name == "regard.attention.kernels":
            continue
        targets = {target for target in imported(ast.parse(path.read_text())) if target.split(".")[0] == "regard"}
        down |= {(name, target) for target in targets if place(target) > place(name)}
    assert down == {(f"regard.{name}", f"regard.{target}") for name, target in DOWN}


def test_every_line_of_the_layout_is_a_module():
    for name in ORDER:
        path = SOURCE.joinpath(*name.split("."))
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name
    assert len(ORDER) == len(set(ORDER))


def test_the_map_is_true():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    _, begin, rest = page.partition(BEGIN)
    drawn, end, _ = rest.partition(END)
    assert (begin, end) == (BEGIN, END)
    assert drawn == draw_map(), "python docs/layout.py draws it anew"
    names = [line.split()[0] for line in drawn.splitlines() if not line.startswith((" " * COLUMN, "```"))]
    modules = [path.name for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(name for name in names if name.endswith(".py")) == sorted(modules)
    assert {name.rstrip("/") for name in names if name.endswith("/")} == {
        "src/regard",
        *(path.parent.name for path in SOURCE.rglob("*/__init__.py")),
    }


def test_the_heart_needs_torch_and_jaxtyping_alone():
    files = [*SOURCE.glob("attention/**/*.py"), *SOURCE.glob("layers/**/*.py")]
    assert len(files) >= 15
    for path in files:
        allowed = HEART | HEART_MAY.get(str(path.relative_to(SOURCE)), set()) | set(sys.stdlib_module_names)
        roots = {target.split(".")[0] for target in imported(ast.parse(path.read_text()))}
        assert roots <= allowed, path


def test_every_public_name_is_there():
    for name in ("regard", "regard.attention", "regard.layers"):
        module = importlib.import_module(name)
        assert (
            module.__all__ == sorted(module.__all__, key=lambda n: (n == n.lower(), n != n.upper(), n))
            or name == "regard"
        )
        for public in module.__all__:
            assert getattr(module, public) is not None, public
    assert set(dir(regard)) == set(regard.__all__)


def test_importing_regard_does_not_import_torch():
    program = "import sys, regard; assert 'torch' not in sys.modules; regard.attend; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'regard' has no attribute 'atend'$"):
        regard.atend  # noqa: B018
