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
        ((model,), "look: found nothing after the model; a text is needed"),
        ((model, 3), "look: found int after the model; a text is needed"),
        ((model, "a", "b"), "look: found str, str after the model; a text is needed"),
        (("runs/x", "a"), "look: found str; give what regard.load gives, or a Transformers model"),
        ((model, " \n"), "look: the text is empty"),
    ]
    for given, line in cases:
        with pytest.raises(RegardError) as error:
            look(*given)
        assert str(error.value) == line
