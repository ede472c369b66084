"""Draws the pictures of these pages and the map in CONTRIBUTING.md: `make docs`.

Each page that shows a drawing draws it itself, so the pages are run here, models and all,
and what they draw is kept. Then three small translators are trained, served and looked
into, and the screenshots are taken of that. It takes about a minute and a half.

A screenshot needs Chromium; where there is none, those that are there are left as they are.
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

PAGES = Path(__file__).parent
PICTURES = PAGES / "pictures"
DRAWING = ("attend.md", "predict.md", "align.md", "look.md")
ENDINGS = (".png", ".svg")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
COMMAND = Path(sys.executable).with_name("regard")
LARGEST = 150_000  # bytes of one

DATA = {"train": "toy-en-de", "count": 4000, "corpus": {"clauses": 1, "questions": False}}
QUICK = {"steps": 250, "tokens": 1500, "rate": 1e-2, "warmup": 25, "validate_every": 250, "validate_most": 20}
GENTLE = {"steps": 250, "tokens": 1000, "rate": 5e-3, "warmup": 40, "validate_every": 250, "validate_most": 20}
SMALL = {"hidden": 64, "embedding": 64, "dropout": 0.1}
LAYERS = {"width": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # name -> its model, its training
    "attention": ({"name": "simple-attention", "bidirectional": True, **SMALL}, QUICK),
    "plain": ({"name": "seq2seq", **SMALL}, QUICK),
    "transformer": ({"name": "transformer", **LAYERS}, GENTLE),
}
TEXT, TARGET = "today the dog does not see a bird", "heute sieht der hund keinen vogel"

SERVED: dict[str, tuple[str, dict[str, str]]] = {  # picture -> light or dark, and what the page shows
    "serve": ("light", {"model": "attention"}),
    "serve-dark": ("dark", {"model": "attention", "view0": "matrix"}),
    "compare": ("light", {"model": "attention", "other": "plain"}),
}
LOOKED = {"lines": "attention", "heads": "transformer"}  # view -> run
TERMINAL = """<body style="margin: 0"><pre style="display: inline-block; margin: 0; padding: 16px;
background: #12151b; color: #e6edf3; font: 15px/1.16 ui-monospace, monospace">{code}</pre></body>"""


def run(page: Path) -> None:
    """Run the Python of a page; what it prints is in the page already."""
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with redirect_stdout(StringIO()):
        exec("\n".join(code), {"__name__": "page"})


def draw() -> None:
    """Keep what the pages draw."""
    for name in DRAWING:
        with TemporaryDirectory() as folder, chdir(folder):
            run(PAGES / name)
            for picture in sorted(path for path in Path(folder).iterdir() if path.suffix in ENDINGS):
                keep(picture.name, picture.read_bytes())


def keep(name: str, content: bytes) -> None:
    """Put a picture beside the others."""
    (PICTURES / name).write_bytes(content)
    print(PICTURES / name)


def screenshots() -> None:
    """Train the models, and keep what is seen of them on the page, in the terminal and in a file."""
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
        shoot_files(browser)
        shoot_terminal(browser)
        browser.close()


@contextmanager
def served() -> Iterator[str]:
    """The address of a server of all models."""
    folders = [str(Path("runs", name)) for name in RUNS]
    line = [COMMAND, "serve", *folders, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def shoot_server(browser: Any) -> None:
    """The page of `regard serve`."""
    with served() as address:
        for name, (scheme, shown) in SERVED.items():
            page = opened(browser, width=1000, scheme=scheme)
            page.goto(f"{address}#{urlencode({**shown, 'text': TEXT})}")
            page.locator("#status").get_by_text("Done in").wait_for()
            page.locator("body:not(:has([aria-busy=true]))").wait_for()
            shoot(page, "body", name)


def shoot_files(browser: Any) -> None:
    """Views of the page that `regard look` writes."""
    for view, name in LOOKED.items():
        path = Path(f"{view}.html").resolve()
        subprocess.run(
            [COMMAND, "look", f"runs/{name}", TEXT, "--target", TARGET, "--html", path, "--quiet"], check=True
        )
        page = opened(browser, width=660)
        page.goto(f"{path.as_uri()}#view={view}")
        shoot(page, "main", view)


def shoot_terminal(browser: Any) -> None:
    """What `regard look` prints, in colours."""
    from rich.console import Console
    from rich.text import Text

    line = ["look", "runs/attention", TEXT]
    colours = {**os.environ, "FORCE_COLOR": "3", "COLUMNS": "80"}
    printed = subprocess.run([COMMAND, *line], check=True, env=colours, stdout=subprocess.PIPE, text=True).stdout
    console = Console(record=True, width=80, file=StringIO(), color_system="truecolor")
    console.print(f'$ regard look runs/attention "{TEXT}"', markup=False, highlight=False)
    console.print(Text.from_ansi(printed.rstrip()))
    page = opened(browser, width=900)
    page.set_content(console.export_html(inline_styles=True, code_format=TERMINAL))
    shoot(page, "pre", "terminal")


def opened(browser: Any, *, width: int, scheme: str = "light") -> Any:
    """A page of a browser, as wide, and as high as what it shows."""
    size = {"width": width, "height": 400}
    return browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=2).new_page()


def shoot(page: Any, part: str, name: str) -> None:
    """Keep a part of a page as a small file."""
    from PIL import Image

    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    picture = Image.open(BytesIO(page.locator(part).screenshot())).convert("RGB")
    content = BytesIO()
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # so that the file is small
    few.save(content, "PNG", optimize=True)
    assert content.tell() <= LARGEST, f"{name}: {content.tell()} bytes"
    keep(f"{name}.png", content.getvalue())
    page.context.close()


if __name__ == "__main__":
    write_map()
    draw()
    screenshots()
