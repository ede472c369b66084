import json
import signal
import socket
import threading
import urllib.error
import urllib.request

import pytest

from regard import RegardError
from regard.serve import server
from regard.serve.server import format_address, open_socket, warn_if_open
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


def test_a_server_open_to_others_without_a_token_warns(monkeypatch):
    logged = []
    monkeypatch.setattr(server, "log", lambda *event, **fields: logged.append((*event, fields)))
    warn_if_open(ServeSettings())
    warn_if_open(ServeSettings(host="0.0.0.0", token="secret"))
    assert logged == []
    warn_if_open(ServeSettings(host="0.0.0.0"))
    message = "anyone who can reach 0.0.0.0 can use the models: no token is set; see --token-file"
    assert logged == [("warning", {"message": message})]


def test_it_listens_while_it_loads(reverse_run, monkeypatch, capsys):
    states = []

    def load_late(pool, device, settings):
        address = f"http://127.0.0.1:{port}"
        for path in ("/health", "/ready"):
            try:
                states.append(urllib.request.urlopen(address + path, timeout=10).status)
            except urllib.error.HTTPError as error:
                with error:
                    states.append(error.code)
        raise RegardError("cannot be loaded")

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr("regard.serve.served_models.ModelPool.load", load_late)
    with pytest.raises(RegardError) as caught:
        server.serve([reverse_run], ServeSettings(port=port))
    assert (str(caught.value), states) == ("cannot be loaded", [200, 503])
    assert capsys.readouterr().out == ""  # the address is printed when the models can answer
