import math

import pytest

from regard import RegardError
from regard.serve.settings import ServeSettings


def test_only_this_machine_is_let_in_unless_told_otherwise():
    assert ServeSettings().local
    assert ServeSettings(host="::1").local
    assert not ServeSettings(host="0.0.0.0").local


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"port": -1}, "--port is -1; 0 is the least"),
        ({"port": 65536}, "--port is 65536; 65535 is the greatest"),
        ({"most_bytes": 0}, "--most-bytes is 0; 1 is the least"),
        ({"queue": 0}, "--queue is 0; 1 is the least"),
        ({"seconds": 0.5}, "--seconds is 0.5; 1 is the least"),
        ({"seconds": math.nan}, "--seconds is nan; a number is needed"),
        ({"seconds": math.inf}, "--seconds is inf; a number is needed"),
    ],
)
def test_what_cannot_be_is_refused(settings, line):
    with pytest.raises(RegardError) as caught:
        ServeSettings(**settings)
    assert str(caught.value) == line
