"""Every Python block of every page runs, and prints what the page says it prints."""

import io
import re
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
BLOCKS = {  # page -> how many Python blocks it has
    "CONTRIBUTING.md": 5,
    "README.md": 1,
    "docs/README.md": 0,
    "docs/align.md": 9,
    "docs/attend.md": 25,
    "docs/coming-from.md": 0,
    "docs/compare.md": 1,
    "docs/course/README.md": 0,
    "docs/course/1-one-vector-is-not-enough.md": 17,
    "docs/course/2-a-short-circuit.md": 17,
    "docs/course/3-a-soft-lookup.md": 19,
    "docs/course/4-a-language-model-that-looks-back.md": 17,
    "docs/course/5-many-vectors-to-one.md": 15,
    "docs/coverage.md": 0,
    "docs/data.md": 16,
    "docs/explain.md": 2,
    "docs/glossary.md": 0,
    "docs/grapheme-to-phoneme.md": 4,
    "docs/inflection.md": 4,
    "docs/label.md": 6,
    "docs/language.md": 13,
    "docs/look.md": 5,
    "docs/predict.md": 10,
    "docs/results.md": 0,
    "docs/see-the-weights.md": 17,
    "docs/self-attention.md": 11,
    "docs/serve.md": 4,
    "docs/speed.md": 0,
    "docs/story.md": 0,
    "docs/train.md": 9,
    "docs/walk.md": 2,
}
QUICK = {
    "CONTRIBUTING.md",
    "docs/attend.md",
    "docs/data.md",
    "docs/see-the-weights.md",
    "docs/self-attention.md",
    "docs/walk.md",
}
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@dataclass(frozen=True)
class Block:
    """Python of a page, the line it begins at, and what the page says that it prints."""

    code: str
    line: int
    output: str


def blocks_of(text: str) -> list[Block]:
    """The Python blocks of a page; a text block that follows at once is its output."""
    return [
        Block(result["code"], text.count("\n", 0, result.start("code")), result["output"] or "")
        for result in FENCE.finditer(text)
    ]


def run(block: Block, page: str, namespace: dict[str, Any]) -> str:
    """Run a block, with errors that point at the page's own lines, and give what it printed."""
    code = compile("\n" * block.line + block.code, page, "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def test_these_are_the_pages_and_their_blocks():
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    result = {page.relative_to(ROOT).as_posix(): len(blocks_of(page.read_text())) for page in pages}
    assert result == BLOCKS
    assert all(page.read_text().count("```python") == result[page.relative_to(ROOT).as_posix()] for page in pages)


@pytest.fixture
def one_thread():
    """One thread for torch: with more, tests that run side by side wait for each other at every step."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page, count in BLOCKS.items() if count],
)
def test_a_page_does_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks_of((ROOT / page).read_text()):
            assert run(block, page, namespace) == block.output, f"{page}, the block at line {block.line + 1}"


@pytest.mark.parametrize("page", BLOCKS)
def test_links_lead_somewhere(page):
    for target in LINK.findall((ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_a_block_knows_its_line_and_its_output():
    text = "one\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\npass\n```\nno output\n```text\n2\n```\n"
    assert blocks_of(text) == [Block("print(1)\n", 3, "1\n"), Block("pass\n", 11, "")]
