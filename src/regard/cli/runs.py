"""Commands on a run: what they do, and the options that they have, come from the task of that run."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from regard.cli.options import Command, keyword, with_parameters
from regard.errors import RegardError
from regard.tasks import TASKS
from regard.tasks.actions import Action, Flag, Given, Invocation
from regard.tasks.options import merge_options, names_of

HELP = ("--help", "-h")

NO_NEGATIVES = Parameter(negative=())
"""No --no-quick beside --quick."""

RUN = Annotated[Path, Parameter(help="A run folder made by regard train.")]
TEXT = Annotated[Given, Parameter(help="The text; stdin unless given.")]
DEVICE = Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1.")]
QUIET = Annotated[Flag, Parameter(help="Show no progress and no notes.")]


def actions_by_task(name: str) -> dict[str, type[Action]]:
    """What a command does: the name of each task that has it -> its action."""
    return {task.name: task.actions[name] for task in TASKS.values() if name in task.actions}


def any_action(name: str) -> type[Action]:
    """What a command does in one of its tasks, for what is the same in all; the last, whose examples come first."""
    return list(actions_by_task(name).values())[-1]


def action_names() -> list[str]:
    """All commands on a run."""
    return list(dict.fromkeys(name for task in TASKS.values() for name in task.actions))


def add_action(app: App, name: str, words: Sequence[str]) -> None:
    """Add a command on a run; where it is the one that was typed, with the options that the run's task has for it."""
    run = typed_run(name, words[1:]) if list(words[:1]) == [name] else None
    action = any_action(name) if run is None else action_for(name, run)
    options = options_of(actions_by_task(name) if run is None else {"": action})

    def command(run: Path, *text: str | None, device: str = "auto", quiet: bool = False, **given: Any) -> None:
        carry_out(action(**given), Invocation(run, text[0] if text else None, device, quiet))

    example = f"Example: regard {action.example}"
    app.command(with_options(command, action, options), name=name, help=action.summary, help_epilogue=example)


def typed_run(name: str, words: Sequence[str]) -> Path | None:
    """The run that a command line names; None for one that asks for help or the version alone."""
    if any(word in HELP for word in words):
        return next((Path(word) for word in words if os.path.isfile(os.path.join(word, "run.json"))), None)
    parser = App(name="regard", default_parameter=NO_NEGATIVES)
    parser.command(with_options(lambda: None, any_action(name), options_of(actions_by_task(name))), name=name)
    _, bound, _ = parser.parse_args([name, *words], print_error=False, exit_on_error=False)
    run: Path | None = bound.arguments.get("run")
    return run


def action_for(name: str, run: Path) -> type[Action]:
    """What a command does with a run, or a `RegardError` if the run's task does not have it."""
    from regard.tasks.loading import task_of_run

    task, own = task_of_run(run), actions_by_task(name)
    if task.name not in own:
        raise RegardError(f"{name}: is for the task {' or '.join(own)}; {run} {task.does}")
    return own[task.name]


def option_of_other_task(words: Sequence[str], option: str) -> str | None:
    """What to say of an option that only runs of other tasks have; None if none has it."""
    from regard.tasks.loading import task_of_run

    name, key = words[0], option.lstrip("-").replace("-", "_")
    having = [task for task, kind in actions_by_task(name).items() if key in names_of(kind)]
    run = typed_run(name, words[1:]) if having else None
    if run is None:
        return None
    return f"{name}: {option} is for the task {' or '.join(having)}; {run} {task_of_run(run).does}"


def with_options(function: Command, action: type[Action], options: Sequence[inspect.Parameter]) -> Command:
    """A function as the parser takes it: its parameters are a run, a text if the action reads one, and the options."""
    before = inspect.Parameter.POSITIONAL_ONLY
    text = inspect.Parameter("text", before, annotation=TEXT, default=None)
    parameters = [
        inspect.Parameter("run", before, annotation=RUN),
        *([text] if action.reads_text else []),
        *options,
        keyword("device", DEVICE, "auto"),
        keyword("quiet", QUIET, False),
    ]
    return with_parameters(function, parameters)


def options_of(own: Mapping[str, type[Action]]) -> list[inspect.Parameter]:
    """The options of a command in some tasks; those that not all of these have under the names of their tasks."""
    merged = []
    for key, each in merge_options(own.items()).items():
        remark = Parameter(help=each.meaning)
        if len(each.help) < len(own):
            remark = Parameter(help=each.meaning, group=Group(f"Only for the task {' or '.join(each.help)}"))
        merged.append(keyword(key, Annotated[each.hint, remark], each.default))
    return merged


def carry_out(action: Action, given: Invocation) -> None:
    """Check the options, load the run, and do what is asked."""
    from regard.cli.devices import chosen_device
    from regard.tasks.loading import load

    action.check()
    device = chosen_device(given.device)
    action.run(load(given.run, device), replace(given, device=device))
