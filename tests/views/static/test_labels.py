import pytest


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("word", "word"),
        ("</script>", "</script>"),
        ("\x1b[2J", "␛[2J"),
        ("a\nb", "a␊b"),
        ("\x7f\x85", "␡\ufffd"),
        ("\u202eevil", "\ufffdevil"),
        ("  ", "␣␣"),
        (" a", " a"),
        ("\u0301x", "◌\u0301x"),
        ("می\u200cشود", "می\u200cشود"),  # the joiner shapes the letters, and is left
        ("", ""),
    ],
)
def test_nothing_in_a_token_steers_the_page(modules, token, shown):
    program = "async (token) => (await import('/labels.js')).sanitize(token)"
    assert modules.evaluate(program, token) == shown


def test_half_a_surrogate_is_replaced(modules):
    program = "async () => (await import('/labels.js')).sanitize('a\\ud800b')"
    assert modules.evaluate(program) == "a\ufffdb"


@pytest.mark.parametrize(
    ("weight", "text"), [(0, "0"), (1, "1"), (0.81249, "0.812"), (0.5, "0.5"), (0.00042, "4.2e-4")]
)
def test_a_weight_is_told_in_three_digits(modules, weight, text):
    assert modules.evaluate("async (weight) => (await import('/labels.js')).formatWeight(weight)", weight) == text
