"""A real browser for tests; where there is none they are skipped."""

import shutil
from collections.abc import Sequence
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = {  # what is missing, as it is said where a test is skipped -> what to do
    "needs Chromium": "install Chromium, on Debian and Ubuntu by: apt install chromium",
    "needs playwright": "install Playwright, by: pip install playwright",
}


@contextmanager
def chromium():
    """A headless browser, by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def tell_skipped(skipped: Sequence[pytest.TestReport]) -> list[str]:
    """What to say at the end of a test run of pages that were not tested."""
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in skipped if isinstance(report.longrepr, tuple)]
    counts = {reason: reasons.count(reason) for reason in INSTALL if reason in reasons}
    return [f"skipped tests of pages: {count}; to run them, {INSTALL[reason]}" for reason, count in counts.items()]
