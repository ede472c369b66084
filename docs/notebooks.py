"""Write the pages of the course as Jupyter notebooks: `make docs`, or `python docs/notebooks.py` alone.

A notebook has the text of its page in Markdown cells and the Python blocks in code cells, with the
output that the page shows. A test compares both, so a notebook runs wherever its page runs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

COURSE = Path(__file__).parent / "course"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def to_notebook(page: str) -> dict[str, Any]:
    """Convert a page to a notebook, as JSON values."""
    cells, end = [], 0
    for block in BLOCK.finditer(page):
        cells.append(build_cell("markdown", page[end : block.start()]))
        cells.append(build_cell("code", block["code"], block["output"]))
        end = block.end()
    cells.append(build_cell("markdown", page[end:]))
    filled = [cell for cell in cells if cell["source"]]
    for number, cell in enumerate(filled):
        cell["id"] = f"cell-{number}"
    return {"cells": filled, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def build_cell(kind: str, text: str, output: str | None = None) -> dict[str, Any]:
    """Build a cell; links between pages of the course lead to notebooks."""
    if kind == "markdown":
        text = re.sub(r"\]\((\d-[\w-]+)\.md\)", r"](\1.ipynb)", text)
        return {"cell_type": kind, "metadata": {}, "source": text.strip().splitlines(keepends=True)}
    outputs = [{"name": "stdout", "output_type": "stream", "text": output.splitlines(keepends=True)}] if output else []
    code = {"execution_count": None, "outputs": outputs, "source": text.rstrip().splitlines(keepends=True)}
    return {"cell_type": kind, "metadata": {}, **code}


def format_notebook(page: Path) -> str:
    """Return the content of the notebook of a page."""
    return json.dumps(to_notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"


def write_notebooks() -> None:
    """Write the notebook of every page of the course, beside it."""
    for page in sorted(COURSE.glob("*.md")):
        if page.name != "README.md":
            page.with_suffix(".ipynb").write_text(format_notebook(page), encoding="utf-8")
            print(page.with_suffix(".ipynb"))


if __name__ == "__main__":
    write_notebooks()
