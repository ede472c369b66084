from types import SimpleNamespace

from tests.chromium import tell_skipped


def test_pages_that_were_not_tested_are_told_with_what_to_install():
    def skipped(reason):
        return SimpleNamespace(longrepr=("tests/test_page.py", 3, f"Skipped: {reason}"))

    assert tell_skipped([]) == []
    assert tell_skipped([skipped("not offered")]) == []
    assert tell_skipped([skipped("needs Chromium"), skipped("not offered"), skipped("needs Chromium")]) == [
        "skipped tests of pages: 2; to run them, install Chromium, on Debian and Ubuntu by: apt install chromium"
    ]
    assert tell_skipped([skipped("needs playwright")]) == [
        "skipped tests of pages: 1; to run them, install Playwright, by: pip install playwright"
    ]
