from contextlib import contextmanager

import pytest

from regard.attention.shared_context import share_context


def test_the_last_to_go_leaves_a_shared_context():
    events = []

    @contextmanager
    def context():
        events.append("enter")
        yield
        events.append("leave")

    first, second = share_context("key", context), share_context("key", context)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert events == ["enter"]
    with share_context("key", context):
        second.__exit__(None, None, None)
        assert events == ["enter"]
    assert events == ["enter", "leave"]
    with pytest.raises(ZeroDivisionError), share_context("key", context), share_context("other", context):
        raise ZeroDivisionError
    assert events == ["enter", "leave", "enter", "enter", "leave", "leave"]


def test_a_context_that_fails_is_not_held():
    @contextmanager
    def failing():
        raise ZeroDivisionError
        yield

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), share_context("failing", failing):
            pass
