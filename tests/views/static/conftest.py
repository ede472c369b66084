"""Pages in a browser: of a map, or with the modules of the package at http://regard.test/."""

import mimetypes
from importlib import resources

import numpy as np
import pytest

from regard.views.shades import DARK_RAMP, RAMP
from tests.chromium import chromium

STATIC = resources.files("regard.views").joinpath("static")
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="package")
def browser():
    with chromium() as browser:
        yield browser


class Watched:
    """A page with its requests and errors."""

    def __init__(self, page):
        self.page, self.requested, self.wrong = page, [], []
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)

    def drawn(self):
        """Wait until the view is drawn."""
        self.page.evaluate(DRAWN)

    def status(self):
        self.drawn()
        return self.page.get_by_role("status").text_content()

    def pixels(self, points, place=0):
        """The colors of a canvas at some points of it, which are in pixels of the page."""
        self.drawn()
        program = """([place, points]) => {
            const canvas = document.querySelectorAll(".panel canvas")[place];
            const pen = canvas.getContext("2d");
            const ratio = canvas.width / canvas.clientWidth;
            const at = (x, y) => pen.getImageData(Math.floor(x * ratio), Math.floor(y * ratio), 1, 1).data;
            return points.map(([x, y]) => [...at(x, y)]);
        }"""
        return [tuple(color) for color in self.page.evaluate(program, [place, points])]

    def pixel(self, x, y, place=0):
        return self.pixels([(x, y)], place)[0]


@pytest.fixture
def opened(browser, tmp_path):
    """A function that opens the page of a map; at the end, there must be no errors."""
    contexts, pages = [], []

    def function(picture, shown="", first=None, **options):
        contexts.append(browser.new_context(**{"viewport": {"width": 1000, "height": 800}, **options}))
        watched = Watched(contexts[-1].new_page())
        pages.append(watched)
        watched.page.goto(f"{picture.save_html(tmp_path / 'look.html', **(first or {})).as_uri()}{shown}")
        watched.drawn()
        return watched

    yield function
    wrong = [text for watched in pages for text in watched.wrong]
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def modules(browser):
    """A page on which the modules can be imported, from no network."""
    context = browser.new_context()

    def answer(route):
        name = route.request.url.removeprefix("http://regard.test/")
        if not name:
            route.fulfill(body="<!doctype html><title>modules</title>", content_type="text/html")
        else:
            kind = mimetypes.guess_type(name)[0] or "text/javascript"
            route.fulfill(body=STATIC.joinpath(name).read_text(encoding="utf-8"), content_type=kind)

    context.route("http://regard.test/**", answer)
    page = context.new_page()
    page.goto("http://regard.test/")
    yield page
    context.close()


def shade_color(shade, *, dark=False):
    """The color of a shade, by the ramp's definition."""
    ramp = DARK_RAMP if dark else RAMP
    return [np.interp(shade * (len(ramp) - 1), range(len(ramp)), channel) for channel in zip(*ramp, strict=True)]
