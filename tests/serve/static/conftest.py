"""The page of a server, in a browser."""

import pytest

from tests.chromium import chromium
from tests.views.static.conftest import Watched


@pytest.fixture(scope="package")
def browser():
    with chromium() as browser:
        yield browser


class Shown(Watched):
    """The page of a server."""

    def run(self, text, **fields):
        """Fill in the form, run, and wait for the end."""
        for name, value in {"text": text, **fields}.items():
            field = self.page.locator(f"[name={name}]")
            if name in ("model", "other", "words"):
                field.select_option(value)
            else:
                field.fill(value)
        self.page.get_by_role("button", name="Run").click()
        self.done()

    def done(self):
        self.page.locator("#status").get_by_text("Done in").wait_for()
        self.drawn()

    def drawn(self):
        """Wait until all requests are answered and everything is drawn."""
        self.page.locator("body:not(:has([aria-busy=true]))").wait_for()
        super().drawn()

    def outputs(self):
        return [each.text_content() for each in self.page.locator(".output").all()]

    def description(self):
        """The status line of the viewer in the first pane."""
        self.drawn()
        return self.page.locator(".pane .status").first.text_content()


@pytest.fixture
def shown(browser, client):
    """A function that opens the page; at the end, there must be no errors and no requests to other hosts."""
    contexts, pages = [], []

    def function(hash_="", address=client.address, **options):
        contexts.append(browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options}))
        watched = Shown(contexts[-1].new_page())
        pages.append(watched)
        watched.page.set_default_timeout(20_000)
        watched.page.goto(f"{address}/{hash_}")
        watched.page.wait_for_load_state("networkidle")  # the form asks for the models
        return watched

    yield function
    wrong = [text for watched in pages for text in watched.wrong]
    requested = [address for watched in pages for address in watched.requested]
    for context in contexts:
        context.close()
    assert wrong == []
    assert all(address.startswith("http://127.0.0.1:") for address in requested)
