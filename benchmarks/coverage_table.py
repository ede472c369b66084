"""Write the results of the coverage benchmark as a page of the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

Row = dict[str, Any]
SAME = ("output", "train_output", "gradients", "random_state", "eager_output")


def write_page(page: Path, rows: list[Row]) -> None:
    """Write the page: a summary, and one line for each type."""
    rows = list({row["type"]: row for row in rows}.values())
    built = sorted((row for row in rows if "not_built" not in row), key=lambda row: row["type"])
    attending = [row for row in built if row.get("attentions")]
    without = [row for row in built if not row.get("attentions")]
    left = [row for row in rows if "not_built" in row]
    lines = [*describe(built, attending, without, left), *table(attending), "", *list_without(without)]
    page.write_text("\n".join([*lines, *list_left(left, find_parts(built))]) + "\n", encoding="utf-8")


def find_parts(built: list[Row]) -> dict[str, str]:
    """Return the types that were parts of models of other types, with the first of these."""
    parts: dict[str, str] = {}
    for row in built:
        for part in row.get("parts", ()):
            parts.setdefault(part, row["type"])
    return parts


def describe(built: list[Row], attending: list[Row], without: list[Row], left: list[Row]) -> Iterator[str]:
    """Yield the summary."""
    exact = sum(not find_faults(row) for row in attending)
    unchanged = sum(is_unchanged(row) for row in built)
    written = [row for row in built if row.get("generate")]
    same_text = sum(all(row["generate"].values()) for row in written)
    yield "# Coverage of `watch`: the model types of Transformers"
    yield ""
    yield (
        "`python benchmarks/coverage.py rows.jsonl docs/coverage.md CHECKOUT` builds a small random model of every "
        f"model type of Transformers {transformers.__version__}, runs it with and without `watch`, and compares (torch "
        f"{torch.__version__.partition('+')[0]}, CPU, float32). Models are built from the configuration of their type, "
        "with four layers where two compute no attention, "
        "or, where that makes none that is small and runs, by the type's own tests in a checkout of the repository of "
        f"Transformers ({sum(row.get('made') == 'tests' for row in built)} types). Of {len(built) + len(left)} types, "
        f"{len(built)} were built and run that way; {len(attending)} of them compute attention."
    )
    yield ""
    yield "| | types |"
    yield "|---|---|"
    yield f"| output, gradients and random numbers: the same bits with `watch` | {unchanged} of {len(built)} |"
    yield f"| `generate` writes the same (greedy; sampled, static cache; beams) | {same_text} of {len(written)} |"
    yield f"| all weights exact | {exact} of {len(attending)} |"
    yield f"| no attention recorded | {len(without)} |"
    yield ""
    yield (
        "*Exact*: every call of `scaled_dot_product_attention` was recorded with the weights that this operator itself "
        "gives, in float64, for values that are the identity matrix, to 2e-4 (what float32 leaves of large random "
        "scores); and every matrix that eager attention returns with `output_attentions=True` was recorded in that "
        "run, except those of deformable attention, which has no keys. With a static cache, `generate` ran uncompiled. "
        "*how*: `lazy` weights are computed on demand from query and keys, `matrix` is the model's own."
    )
    yield ""


def table(rows: list[Row]) -> Iterator[str]:
    """Yield one line for each type with attention."""
    yield "| type | class | attentions | kinds | exact | how | modules not seen |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        faults = "; ".join(find_faults(row)) or "yes"
        unseen = ", ".join(dict.fromkeys(f"{module}: {reason}" for _, module, reason in row["unseen"]))
        kinds = ", ".join(dict.fromkeys(kind for joined in row["kinds"] for kind in joined.split(", ")))
        how = ", ".join(row["how"])
        yield f"| {row['type']} | {row['class']} | {row['attentions']} | {kinds} | {faults} | {how} | {unseen} |"


def find_faults(row: Row) -> list[str]:
    """Return what is wrong or missing in a row."""
    faults = [f"{len(row['differs'])} of {row['truths']} calls differ"] if row.get("differs") else []
    if row.get("eager_missing"):
        faults.append(
            f"{len(row['eager_missing'])} of {row['eager']} matrices that eager returns are not those recorded"
        )
    return faults + ([] if row.get("finite", True) else ["not finite"])


def is_unchanged(row: Row) -> bool:
    """Return whether everything compared has the same bits."""
    return all(row.get(name, True) for name in SAME)


def list_without(rows: list[Row]) -> Iterator[str]:
    """Yield the types without recorded attention."""
    yield "## No attention recorded"
    yield ""
    said = [row for row in rows if row.get("unseen")]
    yield "Modules that look like attention ran, and `report()` says why nothing was recorded:"
    yield ""
    for row in said:
        reasons = dict.fromkeys(f"`{module}`: {reason}" for _, module, reason in row["unseen"])
        yield f"- {row['type']}: {'; '.join(reasons)}"
    yield ""
    others = ", ".join(row["type"] for row in rows if not row.get("unseen"))
    yield f"No module looks like attention: {others}."
    yield ""


def list_left(rows: list[Row], parts: dict[str, str]) -> Iterator[str]:
    """Yield the types that were not checked by themselves."""
    yield "## Checked as a part of another type"
    yield ""
    yield "These types were not built by themselves. They are a part of the type in parentheses, which is in the table:"
    yield ""
    names = sorted(row["type"] for row in rows)
    yield ", ".join(f"{name} ({parts[name]})" for name in names if name in parts) + "."
    yield ""
    yield "## Not checked"
    yield ""
    yield (
        "No small model could be built, or inputs were not found for it: it needs a library that is not installed or "
        "files of a pretrained model, or neither its configuration nor a test makes a small one:"
    )
    yield ""
    yield ", ".join(name for name in names if name not in parts) + "."
