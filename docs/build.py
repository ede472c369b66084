"""Draws the pictures of these pages: `make docs`.

Each page that shows a picture draws it itself, so the pages are run here, models and all,
and what they draw is kept. It takes about half a minute.
"""

import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

PAGES = Path(__file__).parent
PICTURES = PAGES / "pictures"
DRAWING = ("attend.md", "predict.md", "align.md", "look.md")
ENDINGS = (".png", ".svg")


def run(page: Path) -> None:
    """Run the Python of a page; what it prints is in the page already."""
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with redirect_stdout(StringIO()):
        exec("\n".join(code), {"__name__": "page"})


if __name__ == "__main__":
    for name in DRAWING:
        with TemporaryDirectory() as folder, chdir(folder):
            run(PAGES / name)
            for picture in sorted(path for path in Path(folder).iterdir() if path.suffix in ENDINGS):
                kept = PICTURES / picture.name
                kept.write_bytes(picture.read_bytes())
                print(kept)
