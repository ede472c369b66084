import pytest

from regard.serve.validation import suggest_field

FIELDS = ("model", "text", "beam", "max_tokens")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("prompt", 'did you mean "text"?'),
        ("inputs", 'did you mean "text"?'),
        ("max_new_tokens", 'did you mean "max_tokens"?'),
        ("bean", 'did you mean "beam"?'),
        ("n", "see /docs for the API"),  # means nbest, which these requests do not have
        ("xyz", "see /docs for the API"),
    ],
)
def test_an_unknown_field_is_answered_with_a_suggestion(name, suggestion):
    assert suggest_field(name, FIELDS) == suggestion
