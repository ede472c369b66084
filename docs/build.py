"""Draw the pictures of the documentation and the map in CONTRIBUTING.md: `make docs`.

Each page that shows a picture draws it itself, so the pages are run here and their pictures
are kept. Then three small translation models are trained and served, and screenshots are
taken of the page. It takes about two minutes.

Screenshots require Chromium; without it, the existing ones stay as they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from layout import write_map
from notebooks import write_notebooks

PAGES = Path(__file__).parent
PICTURES = PAGES / "pictures"
COURSE = sorted(f"course/{page.name}" for page in PAGES.glob("course/[0-9]*.md"))
DRAWING = ("attend.md", "predict.md", "align.md", "look.md", *COURSE)
ENDINGS = (".png", ".svg")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
COMMAND = Path(sys.executable).with_name("regard")
LARGEST, LARGEST_MOVING = 150_000, 700_000  # bytes of a picture, and of the moving one

DATA = {"train": "toy-en-de", "corpus_size": 4000, "corpus": {"clauses": 1, "questions": False}}
QUICK = {
    "steps": 250,
    "batch_tokens": 1500,
    "learning_rate": 1e-2,
    "warmup_steps": 25,
    "validate_every": 250,
    "max_validation": 20,
}
GENTLE = {
    "steps": 250,
    "batch_tokens": 1000,
    "learning_rate": 5e-3,
    "warmup_steps": 40,
    "validate_every": 250,
    "max_validation": 20,
}
SMALL = {"hidden": 64, "embedding": 64, "dropout": 0.1}
LAYERS = {"width": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # name -> its model, its training
    "attention": ({"name": "simple-attention", "bidirectional": True, **SMALL}, QUICK),
    "plain": ({"name": "seq2seq", "cell": "gru", **SMALL}, QUICK),
    "transformer": ({"name": "transformer", **LAYERS}, GENTLE),
}
TEXT, TARGET = "today the dog does not see a bird", "heute sieht der hund keinen vogel"

SERVED: dict[str, tuple[str, dict[str, str]]] = {  # picture -> light or dark, and what the page shows
    "serve": ("light", {"model": "attention"}),
    "serve-dark": ("dark", {"model": "attention", "view0": "matrix"}),
    "compare": ("light", {"model": "attention", "other": "plain"}),
}
MOVING_SIZE = {"width": 860, "height": 760}
MOVING_VIEWS = ("Matrix", "Lines", "Words")
LOOKED = {"lines": "attention", "heads": "transformer"}  # view -> run
TERMINAL = """<body style="margin: 0"><pre style="display: inline-block; margin: 0; padding: 16px;
background: #12151b; color: #e6edf3; font: 15px/1.16 ui-monospace, monospace">{code}</pre></body>"""


def run(page: Path) -> None:
    """Run the Python code of a page; its output is in the page already."""
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with redirect_stdout(StringIO()):
        exec("\n".join(code), {"__name__": "page"})


def draw() -> None:
    """Save the pictures that the pages draw."""
    for name in DRAWING:
        with TemporaryDirectory() as folder, chdir(folder):
            run(PAGES / name)
            for picture in sorted(path for path in Path(folder).iterdir() if path.suffix in ENDINGS):
                keep(picture.name, shrink(picture) if picture.suffix == ".png" else picture.read_bytes())


def shrink(picture: Path | BytesIO) -> bytes:
    """Return a PNG with 256 colors, so that the file is small."""
    from PIL import Image

    content = BytesIO()
    few = Image.open(picture).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(content, "PNG", optimize=True)
    return content.getvalue()


def keep(name: str, content: bytes) -> None:
    """Save a picture with the others."""
    (PICTURES / name).write_bytes(content)
    print(PICTURES / name)


def screenshots() -> None:
    """Train the models; save screenshots of the page, the terminal and a file."""
    import torch
    from playwright.sync_api import sync_playwright

    from regard import train

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        print(f"no Chromium among {', '.join(BROWSERS)}: the screenshots are left as they are", file=sys.stderr)
        return
    torch.set_num_threads(1)  # small models gain nothing from more
    with TemporaryDirectory() as folder, chdir(folder), sync_playwright() as started:
        for name, (model, training) in RUNS.items():
            train({"data": DATA, "model": model, "training": training}, Path("runs", name), quiet=True)
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        shoot_server(browser)
        shoot_moving(browser)
        shoot_files(browser)
        shoot_terminal(browser)
        browser.close()


@contextmanager
def served() -> Iterator[str]:
    """Serve all models; yield the address."""
    folders = [str(Path("runs", name)) for name in RUNS]
    line = [COMMAND, "serve", *folders, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def shoot_server(browser: Any) -> None:
    """Save screenshots of the page of `regard serve`."""
    with served() as address:
        for name, (scheme, shown) in SERVED.items():
            page = opened(browser, width=1000, scheme=scheme)
            page.goto(f"{address}#{urlencode({**shown, 'text': TEXT})}")
            page.locator("#status").get_by_text("Done in").wait_for()
            page.locator("body:not(:has([aria-busy=true]))").wait_for()
            shoot(page, "body", name)


def shoot_moving(browser: Any) -> None:
    """Save a short moving picture of the page: type a text, run it, switch between views."""
    from PIL import Image

    frames: list[tuple[Any, int]] = []  # a picture and its milliseconds

    def take(milliseconds: int) -> None:
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
        frames.append((picture.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE), milliseconds))

    with served() as address:
        page = browser.new_context(viewport=MOVING_SIZE).new_page()
        page.goto(f"{address}#{urlencode({'model': 'attention'})}")
        text = page.locator("textarea[name=text]")
        text.wait_for()
        take(600)
        words = TEXT.split()
        for end in range(2, len(words) + 1, 2):
            text.fill(" ".join(words[:end]))
            take(350)
        page.locator("button[name=run]").click()
        page.locator("#status").get_by_text("Done in").wait_for()
        page.locator("body:not(:has([aria-busy=true]))").wait_for()
        page.evaluate("() => document.querySelector('#panes').scrollIntoView()")
        for view in MOVING_VIEWS:
            page.get_by_role("tab", name=view, exact=True).first.click()
            take(1600)
        page.context.close()
    content = BytesIO()
    pictures, durations = zip(*frames, strict=True)
    pictures[0].save(
        content, "GIF", save_all=True, append_images=pictures[1:], duration=list(durations), loop=0, optimize=True
    )
    assert content.tell() <= LARGEST_MOVING, f"page.gif: {content.tell()} bytes"
    keep("page.gif", content.getvalue())


def shoot_files(browser: Any) -> None:
    """Save screenshots of the page that `regard look` writes."""
    for view, name in LOOKED.items():
        path = Path(f"{view}.html").resolve()
        subprocess.run(
            [COMMAND, "look", f"runs/{name}", TEXT, "--target", TARGET, "--html", path, "--quiet"], check=True
        )
        page = opened(browser, width=660)
        page.goto(f"{path.as_uri()}#view={view}")
        shoot(page, "main", view)


def shoot_terminal(browser: Any) -> None:
    """Save a screenshot of what `regard look` prints, in color."""
    from rich.console import Console
    from rich.text import Text

    line = ["look", "runs/attention", TEXT]
    colors = {**os.environ, "FORCE_COLOR": "3", "COLUMNS": "80"}
    printed = subprocess.run([COMMAND, *line], check=True, env=colors, stdout=subprocess.PIPE, text=True).stdout
    console = Console(record=True, width=80, file=StringIO(), color_system="truecolor")
    console.print(f'$ regard look runs/attention "{TEXT}"', markup=False, highlight=False)
    console.print(Text.from_ansi(printed.rstrip()))
    page = opened(browser, width=900)
    page.set_content(console.export_html(inline_styles=True, code_format=TERMINAL))
    shoot(page, "pre", "terminal")


def opened(browser: Any, *, width: int, scheme: str = "light") -> Any:
    """Open a page of this width in a browser."""
    size = {"width": width, "height": 400}
    return browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=2).new_page()


def shoot(page: Any, part: str, name: str) -> None:
    """Save a part of a page as a small file."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    content = shrink(BytesIO(page.locator(part).screenshot()))
    assert len(content) <= LARGEST, f"{name}: {len(content)} bytes"
    keep(f"{name}.png", content)
    page.context.close()


if __name__ == "__main__":
    write_map()
    write_notebooks()
    draw()
    screenshots()
