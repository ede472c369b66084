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
        ({"port": -1}, "--port must be at least 0, got -1"),
        ({"port": 65536}, "--port must be at most 65,535, got 65,536"),
        ({"max_bytes": 0}, "--max-bytes must be at least 1, got 0"),
        ({"queue_size": 0}, "--queue-size must be at least 1, got 0"),
        ({"max_connections": 0}, "--max-connections must be at least 1, got 0"),
        ({"header_timeout": 0}, "--header-timeout must be at least 0.1, got 0"),
        ({"body_timeout": -1}, "--body-timeout must be at least 0.1, got -1"),
        ({"send_timeout": math.inf}, "--send-timeout must be at most 86,400, got inf"),
        ({"timeout": 0.5}, "--timeout must be at least 1, got 0.5"),
        ({"timeout": math.nan}, "--timeout must be at least 1, got nan"),
        ({"timeout": math.inf}, "--timeout must be at most 86,400, got inf"),
    ],
)
def test_what_cannot_be_is_refused(settings, line):
    with pytest.raises(RegardError) as caught:
        ServeSettings(**settings)
    assert str(caught.value) == line
