import json
import signal
import socket
import threading
import urllib.request

import pytest

from regard import RegardError
from regard.serve.server import format_address, open_socket
from regard.serve.settings import ServeSettings
from tests.serve.running import in_process


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_nobody_is_cut_off(gpt_run, reverse_run, kind):
    with in_process(gpt_run, reverse_run) as process:
        client = process.client
        assert client.ask("/health").status == 200
        answers = []
        body = {"model": "gpt", "text": "the", "max_tokens": 1000, "seed": 1}

        def write():
            request = urllib.request.Request(
                f"{client.address}/api/stream", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as stream:
                stream.readline()
                begun.set()
                answers.append(stream.read())

        begun = threading.Event()
        thread = threading.Thread(target=write)
        thread.start()
        assert begun.wait(30)
        logged = process.end(kind)
        thread.join()
    assert b"event: answer\n" in answers[0]
    assert (logged[0]["event"], logged[0]["models"]) == ("listening", ["gpt", "reverse"])
    assert [each["event"] for each in logged[-2:]] == ["request", "stopped"]


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(RegardError) as caught, open_socket(ServeSettings(port=port)):
            pass
    assert str(caught.value) == f"cannot listen on 127.0.0.1, port {port}: Address already in use"


def test_a_host_that_is_not_here_is_said():
    with pytest.raises(RegardError, match=r"^cannot listen on 192\.0\.2\.1, port 0: "):
        open_socket(ServeSettings(host="192.0.2.1", port=0)).__enter__()


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("::1", "[::1]")])
def test_the_address_can_be_typed(host, shown):
    settings = ServeSettings(host=host, port=0)
    try:
        with open_socket(settings) as listening:
            assert format_address(listening, settings) == f"http://{shown}:{listening.getsockname()[1]}/"
    except RegardError:
        assert host == "::1"  # a machine may have no IPv6
