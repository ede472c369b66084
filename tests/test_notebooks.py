"""The notebooks of the course are its pages: the code that tests/test_docs.py runs is the code of their cells."""

import json

import pytest

from docs.notebooks import COURSE, format_notebook, to_notebook

PAGES = sorted(page for page in COURSE.glob("*.md") if page.name != "README.md")


def test_a_page_becomes_cells():
    first, second = "```python\nprint(1)\n```\n\n```text\n1\n```\n", "```python\nx = 2\n```\n"
    page = f"# Title\n\nSee [next](2-next.md).\n\n{first}\nMore.\n\n{second}"
    cells = to_notebook(page)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown", "code"]
    assert "".join(cells[0]["source"]) == "# Title\n\nSee [next](2-next.ipynb)."
    assert "".join(cells[1]["source"]) == "print(1)"
    assert cells[1]["outputs"][0]["text"] == ["1\n"]
    assert cells[3]["outputs"] == []


def test_there_are_five_lectures():
    assert [page.name[0] for page in PAGES] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_notebook_is_the_page(page):
    notebook = page.with_suffix(".ipynb")
    assert notebook.read_text(encoding="utf-8") == format_notebook(page), "python docs/notebooks.py writes it anew"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == page.read_text(encoding="utf-8").count("```python\n")
    for block in code:
        compile(block, page.name, "exec")
