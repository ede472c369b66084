"""The layout of the package: the order of its modules, and the map of them in CONTRIBUTING.md.

`make docs` writes the map; `python docs/layout.py` writes it alone.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "regard"
PAGE = ROOT / "CONTRIBUTING.md"

ORDER = [  # a module imports only from lines above its own; a package stands for those of its modules that have no line
    "aliases",
    "messages",
    "errors",
    "bounds",
    "settings",
    "files",
    "attention.shared_context",
    "attention.rng_state",
    "attention.visible",
    "attention.base_score",
    "attention.score_checks",
    "attention.function_score",
    "attention.kernel_scores",
    "attention.scores",
    "attention.soft_cap",
    "attention.normalizers",
    "attention.sink",
    "attention.call",
    "attention.gradients",
    "attention.reductions",
    "attention.kernels.kernel",
    "attention.kernels.mean",
    "attention.kernels.operators",
    "attention.kernels.dot_backward",
    "attention.kernels.sdpa",
    "attention.kernels.fused",
    "attention.kernels.dot_rows",
    "attention.kernels.reference",
    "attention.kernels.tiled",
    "attention.kernels.triton.support",
    "attention.kernels.triton.rule_programs",
    "attention.kernels.triton.dot_programs",
    "attention.kernels.triton.dot",
    "attention.kernels.triton.additive_programs",
    "attention.kernels.triton.additive",
    "attention.kernels.triton.distance_programs",
    "attention.kernels.triton.distance_half_programs",
    "attention.kernels.triton.distance",
    "attention.kernels.dispatch",
    "attention.kernels.compiled",
    "attention.products",
    "attention.indexing",
    "attention.matrix",
    "attention.weights",
    "attention.scaled_weights",
    "attention.lazy_weights",
    "attention.combined_weights",
    "attention.analysis",
    "attention.inputs",
    "attention.intercept.recorded_weights",
    "attention.archive_fields",
    "attention.archive",
    "attention.intercept.flex_weights",
    "attention.intercept.captured",
    "attention.intercept.dot_product",
    "attention.intercept.flex",
    "attention.intercept.flash",
    "attention.intercept.multi_head",
    "attention.intercept.frames",
    "attention.intercept.axes",
    "attention.intercept.functions",
    "attention.intercept.weak_tensors",
    "attention.intercept.tracks",
    "attention.intercept.rescaling",
    "attention.intercept.written_softmax",
    "attention.intercept.softmax",
    "attention.intercept.roles",
    "attention.intercept.torch_calls",
    "attention.intercept.mode",
    "attention.join_steps",
    "attention.watch_report",
    "attention.watch",
    "attention.functional",
    "attention",
    "layers.cache",
    "layers.embedding",
    "layers.lengths",
    "layers.dropout",
    "layers.attention",
    "layers.positions",
    "layers.feed_forward",
    "layers.transformer",
    "layers.recurrent",
    "layers.bridge",
    "layers.crf",
    "layers.source_attention",
    "layers.hard_alignment",
    "layers.vocabulary",
    "layers.pooling",
    "layers.character_encoder",
    "layers",
    "batch",
    "schemes",
    "sentences",
    "models.model",
    "models.state",
    "models.features",
    "models.pointer",
    "models.seq2seq",
    "models.language_model",
    "models.kernel_widths",
    "models.recurrent_seq2seq",
    "models.hard_attention",
    "models.transformer",
    "models.neural_lm",
    "models.recurrent_lm",
    "models.attentive_lm",
    "models.gpt",
    "models.text_encoder",
    "models.attentive_classifier",
    "models.attentive_tagger",
    "models.ensemble",
    "models",
    "text",
    "data",
    "card",
    "run",
    "checkpoint",
    "decoding",
    "alignment",
    "metrics",
    "views.display",
    "views.fields",
    "views.weights",
    "views.attention_map",
    "views",
    "maps",
    "attribution",
    "memory",
    "recipe",
    "training",
    "tasks",
    "api",
    "compare.plan",
    "compare.worker",
    "compare.schedule",
    "compare.seeds",
    "compare.report",
    "compare",
    "interop",
    "bench",
    "serve",
    "cli",
    "__main__",
]

BEGIN, END = "<!-- The map: made by make docs. -->\n", "<!-- The end of the map. -->\n"
INDENT, COLUMN, WIDTH = "  ", 30, 120


def place(module: str) -> int:
    """The line of the layout a module stands on; its name is that of an import."""
    if module == "regard":
        return -1  # its names and version, for all
    names = module.removeprefix("regard.").split(".")
    for size in range(len(names), 0, -1):
        if ".".join(names[:size]) in ORDER:
            return ORDER.index(".".join(names[:size]))
    raise AssertionError(f"{module} has no place in the layout")


def name_of(path: Path) -> str:
    """The name by which a file of the package is imported."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def first_line(path: Path) -> str:
    """What a module says of itself in one line."""
    documentation = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert documentation, f"{path} has no docstring"
    return documentation.splitlines()[0].removesuffix(".")


def draw_map() -> str:
    """Every package and module of the package, in the order of the layout, with its line."""
    modules = sorted(SOURCE.rglob("*.py"), key=lambda path: (place(name_of(path)), path))
    modules = [path for path in modules if path.name != "__init__.py"]
    lines = ["```text", *entry(0, "src/regard/", SOURCE / "__init__.py"), *entries(modules, SOURCE, set()), "```"]
    return "\n".join(lines) + "\n"


def entries(modules: Iterable[Path], folder: Path, drawn: set[Path]) -> Iterator[str]:
    """The lines of modules below a folder; a package that comes again says so."""
    depth = len(folder.relative_to(SOURCE).parts) + 1
    for below, group in groupby(modules, key=lambda path: path.relative_to(folder).parts[0]):
        child = folder / below
        if child.is_file():
            yield from entry(depth, below, child)
        else:
            yield from entry(depth, f"{below}/", child / "__init__.py", again=child in drawn)
            drawn.add(child)
            yield from entries(group, child, drawn)


def entry(depth: int, name: str, path: Path, again: bool = False) -> list[str]:
    """A name and its line, which goes on below itself where it is long."""
    head = (INDENT * depth + name).ljust(COLUMN - 1) + " "
    return textwrap.wrap(
        "continued" if again else first_line(path), WIDTH, initial_indent=head, subsequent_indent=" " * COLUMN
    )


def write_map() -> None:
    """Put the map where it stands in CONTRIBUTING.md."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{draw_map()}{end}{after}", encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    write_map()
