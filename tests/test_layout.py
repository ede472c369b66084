"""The layout of the design: a module imports only from lines above its own."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import regard

SOURCE = Path(regard.__file__).parent

ORDER = [
    "errors",
    "settings",
    "files",
    "attention.surroundings",
    "attention.visible",
    "attention.base_score",
    "attention.score_checks",
    "attention.kernel_scores",
    "attention.scores",
    "attention.normalise",
    "attention.comparison",
    "attention.kernels.operators",
    "attention.kernels.reference",
    "attention.kernels.mean",
    "attention.kernels.tiled",
    "attention.kernels.dot_backward",
    "attention.kernels.sdpa",
    "attention.reductions",
    "attention.weights",
    "attention.arranged",
    "attention.archive",
    "attention.joining",
    "attention.watch",
    "attention.inputs",
    "attention.paths",
    "attention.functional",
    "attention",
    "layers.cache",
    "layers.dropout",
    "layers.attention",
    "layers.positions",
    "layers.feed_forward",
    "layers.transformer",
    "layers.recurrent",
    "layers.crf",
    "layers.source",
    "layers.vocabulary",
    "layers.pooling",
    "layers.spelling",
    "layers",
    "batch",
    "schemes",
    "sentences",
    "models.state",
    "models.seq2seq",
    "models.language",
    "models.kernel_widths",
    "models.recurrent",
    "models.transformer",
    "models.neural_lm",
    "models.recurrent_lm",
    "models.attentive_lm",
    "models.gpt",
    "models.reader",
    "models.attentive_classifier",
    "models.attentive_tagger",
    "models",
    "text",
    "data",
    "run",
    "decoding",
    "alignment",
    "metrics",
    "training.settings",
    "recipe",
    "training",
    "views.fields",
    "views.weights",
    "views.attention_map",
    "predictor",
    "text_predictor",
    "text_evaluation",
    "label_predictor",
    "tasks.predictor",
    "tasks.settings",
    "tasks.base",
    "tasks.pairs",
    "tasks.text",
    "tasks.words",
    "tasks.label",
    "tasks.tag",
    "tasks",
    "loading",
    "api",
    "explaining",
    "interop",
    "views",
    "looking",
    "serve",
    "bench",
    "cli",
]

HEART = {"torch", "jaxtyping", "regard"}
HEART_MAY = {"attention/archive.py": {"safetensors"}}  # loaded when weights are saved, not before


def place(module: str) -> int:
    """The line of the layout a module stands on."""
    if module == "regard":
        return -1  # its names and version, for all
    names = module.removeprefix("regard").removeprefix(".").split(".")
    for size in range(len(names), 0, -1):
        if ".".join(names[:size]) in ORDER:
            return ORDER.index(".".join(names[:size]))
    raise AssertionError(f"{module} has no place in the layout")


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            known = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = {name for name in known if (SOURCE.parent / (name.replace(".", "/") + ".py")).exists()}
            found |= ours or {node.module}
    return found


def test_imports_point_up():
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(files) >= 20
    for path in files:
        name = ".".join(("regard", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        if name == "regard.attention.kernels":
            continue
        own = place(name)
        whole = ast.parse(path.read_text())
        late = {
            id(node)
            for function in ast.walk(whole)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        for node in list(ast.walk(whole)):  # an import inside a function may point anywhere
            if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) in late:
                continue
            for target in imported(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                if target.startswith("regard"):
                    assert place(target) < own or target == name or place(target) == own, f"{name} imports {target}"


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
