"""Real signals to this process."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from regard.training.stop import SignalHandler, StopRequest, Terminated


def send(number):
    os.kill(os.getpid(), number)


def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_stops(number):
    before = handlers()
    with StopRequest() as stop:
        assert not stop
        send(number)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            send(number)
    assert handlers() == before
    assert stop  # still set afterwards


def test_handlers_come_back_after_an_error():
    before = handlers()
    with pytest.raises(ZeroDivisionError), StopRequest():
        1 / 0  # noqa: B018
    assert handlers() == before


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            send(signal.SIGINT)
            assert not stop
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_changes_nothing():
    before, seen = handlers(), []

    def work():
        with StopRequest() as stop:
            seen.append((handlers() == before, bool(stop)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, False)]
    assert handlers() == before


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_in_an_import_waits_until_it_is_over(number, error, tmp_path, monkeypatch):
    name = f"imported_until_{number.name.lower()}"
    (tmp_path / f"{name}.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def import_and_wait():
        assert importlib.import_module(name).whole
        while True:
            time.sleep(0.001)

    with SignalHandler(), pytest.raises(error):
        import_and_wait()
    assert sys.modules.pop(name).whole


BUSY = """
import hashlib, os
from regard.training import stop

stop.REPORT_SECONDS = stop.INTERRUPT_SECONDS = 0.05
stop.exit_process = os._exit
with stop.StopRequest(lambda: os.write(1, b"waiting\\n"), lambda: os.write(1, b"ending\\n")):
    os.write(1, b"ready\\n")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes without a moment for Python
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_process_in_which_python_does_not_run(number):
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        lines = process.stdout
        assert lines is not None
        assert lines.readline() == "ready\n"
        process.send_signal(number)
        assert lines.readline() == "waiting\n"
        process.send_signal(number)
        assert lines.readline() == "ending\n"
    assert process.returncode == 128 + number


def test_a_stop_that_is_soon_is_not_reported():
    reports = []
    with StopRequest(lambda: reports.append("wait"), lambda: reports.append("exit")) as stop:
        send(signal.SIGINT)
        assert stop
    assert reports == []
    assert not [thread for thread in threading.enumerate() if thread.name == "regard-signals"]
    assert signal.set_wakeup_fd(-1) == -1
