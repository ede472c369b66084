"""The command `regard`: one module for each command, imported when that command runs.

Results go to stdout, everything else to stderr. Exit status 2 is an error that the user can
fix, reported in one line; 70 is a bug in regard, reported with its traceback.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import App, CycloptsError, UnknownOptionError, UnusedCliTokensError

from regard import __version__, aliases
from regard.cli.runs import (
    NO_NEGATIVES,
    add_action,
    describe_other_task_option,
    find_actions,
    list_action_names,
    replace_aliases,
)
from regard.cli.threads import shorten_spin
from regard.errors import NO_MEMORY, RegardError, is_out_of_memory
from regard.messages import escape_lines, print_message
from regard.training.stop import Terminated

USER_ERROR, PIPE_CLOSED, OUR_BUG, INTERRUPTED, TERMINATED = 2, 1, 70, 130, 143

COMMANDS = [  # name, help, example
    ("demo", "Train a model in a minute and look inside it.", "demo"),
    ("inspect", "Show the model, training and validation scores of a run.", "inspect runs/dates"),
    (
        "serve",
        "Serve runs over HTTP, with a page that shows their attention.",
        "serve runs/dates runs/plain --port 8000",
    ),
]
BENCHES = [  # name, help, example
    (
        "attention",
        "Compare the score functions with plain PyTorch.",
        "attention --scores additive,dot --jsonl rows.jsonl",
    ),
    ("gpu", "Compare what regard computes on a GPU with its peers.", "gpu --only received,top8 --jsonl rows.jsonl"),
    ("training", "Compare the training of language models with plain PyTorch and Transformers.", "training --quick"),
    ("cost", "Measure how the cost of recurrent and attention layers grows with length.", "cost --picture cost.png"),
    ("scaling", "Measure why dot products are scaled.", "scaling --picture scaling.png"),
    ("watch", "Measure the overhead of watch on a Hugging Face model of GPT-2's size.", "watch --length 2048"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return its exit status."""
    open_streams()
    shorten_spin(os.environ)
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        words = replace_aliases(words)
        check_command(words)
        build_app(words)(words)
        sys.stdout.flush()
    except (RegardError, CycloptsError) as error:
        print_message(f"regard: {format_error(error, words)}")
        return USER_ERROR
    except KeyboardInterrupt as error:
        return TERMINATED if isinstance(error, Terminated) else INTERRUPTED
    except BrokenPipeError:
        close_output()
        return PIPE_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of stdout; a file we write says so itself
            close_output()
            print_message("regard: cannot write standard output: no space left on device")
            return USER_ERROR
        if is_out_of_memory(error):
            print_message(f"regard: {NO_MEMORY}")
            return USER_ERROR
        print(escape_lines(traceback.format_exc()), end="", file=sys.stderr)
        return OUR_BUG
    return 0


def open_streams() -> None:
    """Write UTF-8 in any locale, and replace streams that were closed before we started by empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for as long as we run
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # of an unpaired surrogate


def close_output() -> None:
    """Redirect stdout to nowhere, so that Python does not complain when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_app(words: Sequence[str]) -> App:
    """Build the app of all commands; modules named by a string are imported when their command is called."""
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
    names = list_action_names()
    for name in words[:1] if words[:1] and words[0] in names else names:  # one alone takes a tenth of the time
        add_action(app, name, words)
    app.command(
        "regard.cli.train:train",
        name="train",
        help="Train a model on pairs of texts, plain text, labeled texts or tagged words.",
        help_flags=(),  # its settings depend on the model, so it writes its own help
        version_flags=(),
    )
    app.command(
        "regard.cli.compare:compare",
        name="compare",
        help="Train several models under the same conditions and compare them in a report.",
        help_flags=(),  # it takes the settings of train, too, so it writes its own help
        version_flags=(),
    )
    app.command(build_bench_app())
    app.command(
        "regard.cli.completion:install_completion",
        name="--install-completion",
        help="Install completion of commands and options for your shell.",
        help_epilogue="Example: regard --install-completion --shell bash",
    )
    return app


def build_bench_app() -> App:
    """Build the app of `regard bench`."""
    bench = App(
        name="bench",
        help="Measure time and memory on this machine.",
        help_epilogue="Example: regard bench attention --quick",
    )
    for name, help_, example in BENCHES:
        bench.command(f"regard.cli.bench:{name}", help=help_, help_epilogue=f"Example: regard bench {example}")
    return bench


def format_error(error: Exception, words: Sequence[str]) -> str:
    """Format an error in one line; sentences of the parser begin with a small letter, as ours do."""
    if isinstance(error, UnusedCliTokensError):
        return format_unused_words(error.unused_tokens or [], (error.command_chain or [""])[0])
    if isinstance(error, UnknownOptionError):
        return format_unknown_option(words, str(error.token.keyword or error.token.value), error)
    text = " ".join(str(error).splitlines())
    return text[:1].lower() + text[1:] if isinstance(error, CycloptsError) else text


def format_unused_words(unused: Sequence[str], command: str) -> str:
    """Format the error for arguments that no option takes: after a run they are mostly a file to read."""
    actions = list(find_actions(command).values())
    instead = actions[0].hint if actions else "see regard --help"
    words = " ".join(unused)
    return f"unexpected argument {words}; {instead.format(first=unused[0], words=words)}"


def format_unknown_option(words: Sequence[str], option: str, error: UnknownOptionError) -> str:
    """Format the error for an option that the command does not have, with what to use instead."""
    command, name = " ".join(error.command_chain or words[:1]), option.lstrip("-")
    if other_task := describe_other_task_option(words, option):
        return other_task
    if command_hint := aliases.OPTION_HINTS.get(command, {}).get(name):
        return f"{command}: unknown option {option}; {command_hint}"
    known = [name for argument in error.argument_collection or () for name in argument.names if name.startswith("--")]
    near = get_close_matches(f"--{name}", known, n=1, cutoff=0.7)
    return (
        f"{command}: unknown option {option}; {f'did you mean {near[0]}?' if near else f'see regard {command} --help'}"
    )


def check_command(words: list[str]) -> None:
    """Turn `help` into `--help`; raise a `RegardError` for an unknown command."""
    if words and words[0] == "help":
        words[:] = [*words[1:], "--help"]
    if not words or words[0].startswith("-"):
        return
    known = [*list_action_names(), *(name for name, _, _ in COMMANDS), "train", "compare", "bench"]
    if words[0] not in known:
        near = aliases.COMMANDS.get(words[0]) or next(iter(get_close_matches(words[0], known, n=1)), None)
        hint = f'did you mean "regard {near}"?' if near else "see regard --help"
        raise RegardError(f'unknown command "{words[0]}"; {hint}')
