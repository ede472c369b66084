import base64
import hashlib
import re

from regard.views.document import build_document


def sha(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_names_style_and_script_by_their_hashes():
    page = build_document("a <b>", "<p>body</p>", style="p { color: red; }", script="run()")
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall('<script type="module">(.*?)</script>', page, re.DOTALL)
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{sha(script)}'; style-src 'sha256-{sha(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert "<title>a &lt;b&gt;</title>" in page


def test_without_a_script_none_may_run():
    page = build_document("a", "", style="")
    assert "script-src" not in page
    assert "<script" not in page
