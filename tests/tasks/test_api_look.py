import pytest

import regard
from regard import RegardError
from regard.api import look
from regard.tasks.loading import load


def test_it_is_public():
    assert regard.look is look


def test_what_is_given_after_the_model(reverse_run):
    model = load(reverse_run)
    cases = [
        ((model,), "look: expected a text after the model, got nothing"),
        ((model, 3), "look: expected a text after the model, got int"),
        ((model, "a", "b"), "look: expected a text after the model, got str, str"),
        (("runs/x", "a"), "look: expected a model from regard.load or a Transformers model, got str"),
        ((model, " \n"), "look: the text is empty"),
    ]
    for given, line in cases:
        with pytest.raises(RegardError) as error:
            look(*given)
        assert str(error.value) == line
