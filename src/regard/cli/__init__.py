"""The command `regard`: one module a command, imported only when that command runs.

Results go to stdout, talk to stderr. Exit status 2 is an error that the user can put
right, said in one line; 70 is a bug of ours, with its traceback.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnknownOptionError, UnusedCliTokensError

from regard import __version__
from regard.cli.runs import NO_NEGATIVES, action_names, actions_by_task, add_action, option_of_other_task
from regard.errors import NO_MEMORY, RegardError, is_out_of_memory

USER_ERROR, PIPE_CLOSED, OUR_BUG, INTERRUPTED = 2, 1, 70, 130

COMMANDS = [  # name, help, example
    ("demo", "Train a model in a minute and look inside it.", "demo"),
    ("inspect", "Say what a run is, how it was trained, how good it was.", "inspect runs/dates"),
    ("serve", "Answer over HTTP, and show a page that looks inside models.", "serve runs/dates runs/plain --port 8000"),
]
BENCHES = [  # the same of what can be measured
    (
        "attention",
        "Time every score function against what one would write in plain PyTorch.",
        "attention --scores additive,dot --jsonl rows.jsonl",
    ),
    ("training", "Time the training of language models against plain PyTorch and Transformers.", "training --quick"),
    ("watch", "Time a look at the attention of a Hugging Face model of the size of GPT-2.", "watch --length 2048"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, that of this process unless told otherwise, and give its exit status."""
    open_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command_line(words)(words)
        sys.stdout.flush()
    except (RegardError, CycloptsError) as error:
        print(f"regard: {one_line(error, words)}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        close_output()
        return PIPE_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of stdout; a file we write says so itself
            close_output()
            print("regard: standard output: cannot be written: no space is left there", file=sys.stderr)
            return USER_ERROR
        if is_out_of_memory(error):
            print(f"regard: {NO_MEMORY}", file=sys.stderr)
            return USER_ERROR
        traceback.print_exc()
        return OUR_BUG
    return 0


def open_streams() -> None:
    """Write UTF-8, as we read it, whatever the locale; a stream that was closed before we began is empty."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for as long as we run
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def close_output() -> None:
    """Let stdout lead nowhere, or Python complains as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command_line(words: Sequence[str]) -> App:
    """All commands; those named by a string are imported when they are called, those on a run know its task."""
    app = App(
        name="regard",
        help="Attention you can see, at the speed of attention you can't.",
        help_epilogue="Example: regard demo",
        help_format="plaintext",
        version=__version__,
        default_parameter=NO_NEGATIVES,
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for name, help_, example in COMMANDS:
        app.command(f"regard.cli.{name}:{name}", name=name, help=help_, help_epilogue=f"Example: regard {example}")
    for name in action_names():
        add_action(app, name, words)
    app.command(
        "regard.cli.train:train",
        name="train",
        help="Train a model on pairs of texts, on text, on labels or on tags.",
        help_flags=(),  # its settings depend on the model, so it writes its own help
        version_flags=(),
    )
    bench = App(
        name="bench",
        help="Measure time and memory on this machine.",
        help_epilogue="Example: regard bench attention --quick",
    )
    app.command(bench)
    for name, help_, example in BENCHES:
        bench.command(f"regard.cli.bench:{name}", help=help_, help_epilogue=f"Example: regard bench {example}")
    app.command(
        "regard.cli.completion:install_completion",
        name="--install-completion",
        help="Let your shell complete commands and options.",
        help_epilogue="Example: regard --install-completion --shell bash",
    )
    return app


def one_line(error: Exception, words: Sequence[str]) -> str:
    """What an error says, without line breaks; the parser's sentences begin small, as ours do."""
    if isinstance(error, UnusedCliTokensError):
        return unused_line(error.unused_tokens or [], (error.command_chain or [""])[0])
    if isinstance(error, UnknownOptionError) and (line := option_of_other_task(words, str(error.token.keyword))):
        return line
    text = " ".join(str(error).splitlines())
    return text[:1].lower() + text[1:] if isinstance(error, CycloptsError) else text


def unused_line(unused: Sequence[str], command: str) -> str:
    """What to do with words that no option takes: after a run they are mostly a file to read."""
    having = list(actions_by_task(command).values())
    instead = having[0].instead if having else "regard --help says what there is"
    words = " ".join(unused)
    return f"nothing takes the argument {words}; {instead.format(first=unused[0], words=words)}"
