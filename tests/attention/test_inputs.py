import pytest
import torch

from regard import RegardError, attend
from regard.attention.inputs import checked, fitting_bias
from regard.attention.normalise import Softmax

from .cases import tensors


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 6), (7, 6), (6, 3)), "attend: there are 7 keys and 6 values; each key needs one"),
        (
            ((2, 4, 6), (3, 7, 6), (3, 7, 3)),
            "attend: leading axes of query, keys and values are (2,), (3,), (3,); they do not broadcast",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_said(shapes, message):
    with pytest.raises(RegardError) as error:
        checked(*(torch.zeros(shape) for shape in shapes), None)
    assert str(error.value) == message


def test_types_that_differ_are_said():
    query, keys, values = tensors()
    with pytest.raises(RegardError) as error:
        attend(query.float(), keys, values)
    assert (
        str(error.value) == "attend: query, keys and values are float32, float64, float64; one type for all is needed"
    )


def test_a_bias_of_true_and_false_is_said():
    with pytest.raises(RegardError) as error:
        fitting_bias(torch.ones(4, 7, dtype=torch.bool), Softmax(), torch.zeros(4, 6), torch.Size((4, 7)))
    assert str(error.value) == "bias: is bool; a float type is needed (what may be seen is said with visible)"
