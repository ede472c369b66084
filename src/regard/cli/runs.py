"""Build the commands on a run, such as `predict`; the task of the run decides which options they have."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import App, Group, Parameter

from regard import aliases
from regard.cli.hugging_face import get_folder, get_hugging_face_action, is_hugging_face
from regard.cli.options import Command, keyword, with_parameters
from regard.cli.threads import with_threads
from regard.errors import RegardError
from regard.messages import print_message
from regard.run import SEEDS_FILE, Run, list_members, list_planned_members
from regard.tasks import TASKS
from regard.tasks.actions import Action, Flag, Invocation, OptionalText
from regard.tasks.options import get_field_names, merge_options

HELP = ("--help", "-h", "--help-all")

TASK_GROUP = "Only for the task "

OTHER_OPTIONS = "More options: regard {name} RUN --help, or regard {name} --help-all\n\n"

NO_NEGATIVES = Parameter(negative=())
"""Do not add --no-quick for --quick."""

TEXT = Annotated[OptionalText, Parameter(help="Text; read from stdin by default.")]
DEVICE = Annotated[str, Parameter(help="auto, cpu, cuda or cuda:1.")]
ENSEMBLE = Annotated[
    tuple[Path, ...],
    Parameter(
        consume_multiple=False,
        show_default=False,
        help="Another run with the same tokens, to predict with both; can be repeated. A folder made by regard train "
        "--seeds is an ensemble by itself.",
    ),
]
QUIET = Annotated[Flag, Parameter(alias="-q", help="Print no progress and no notes.")]


def find_actions(name: str) -> dict[str, type[Action]]:
    """Return the action of a command for each task that has the command."""
    return {task.name: task.actions[name] for task in TASKS.values() if name in task.actions}


def get_any_action(name: str) -> type[Action]:
    """Return the action of the last task that has a command, for what is the same in all tasks."""
    return list(find_actions(name).values())[-1]


def list_action_names() -> list[str]:
    """List the commands on a run."""
    return list(dict.fromkeys(name for task in TASKS.values() for name in task.actions))


def add_action(app: App, name: str, words: Sequence[str]) -> None:
    """Add a command on a run, with the options of the run's task if the command line names a run."""
    run = parse_run(name, words[1:]) if list(words[:1]) == [name] else None
    note = describe_other_task(name, run) if run is not None and any(word in HELP for word in words) else None
    run = None if note else run
    action = get_any_action(name) if run is None else get_action(name, run)
    options = build_action_options(find_actions(name) if run is None else {"": action})
    epilogue = f"Example: regard {action.example}"
    if run is None and "--help-all" not in words and any(is_task_specific(each) for each in options):
        options = [each for each in build_action_options(find_actions(name), brief=True) if not is_task_specific(each)]
        epilogue = OTHER_OPTIONS.format(name=name) + epilogue

    def command(
        run: Path,
        *arguments: Any,
        ensemble: tuple[Path, ...] = (),
        device: str = "auto",
        quiet: bool = False,
        **values: Any,
    ) -> None:
        text = arguments[0] if action.reads_text and arguments else None
        for name, argument in zip(action.positional, arguments, strict=False):
            if argument is not None and name in values:
                raise RegardError(f"{name.upper()} cannot be combined with --{name}")
            values |= {} if argument is None else {name: argument}
        run_action(action(**values), Invocation(run, text, device, quiet), ensemble)

    names = ["text"] if action.reads_text else action.positional
    app.command(
        add_options(command, action, options),
        name=name,
        help=f"{action.summary}\n\n{note}" if note else action.summary,
        help_epilogue=epilogue,
        usage=f"Usage: regard {name} RUN {''.join(f'[{each.upper()}] ' for each in names)}[OPTIONS]",
        help_flags=HELP,
    )


def parse_run(name: str, words: Sequence[str]) -> Path | None:
    """Return the run that a command line names; None if it only asks for help or the version."""
    if any(word in HELP for word in words):
        return next((Path(word) for word in words if is_run(word)), None)
    _, bound, _ = build_parser(name).parse_args([name, *words], print_error=False, exit_on_error=False)
    run: Path | None = bound.arguments.get("run")
    return run


def is_run(word: str) -> bool:
    """Return whether a word names a run, or a folder of runs."""
    return any(os.path.isfile(os.path.join(word, name)) for name in ("run.json", SEEDS_FILE))


def build_parser(name: str) -> App:
    """Build a parser of one command, with the options of all tasks."""
    parser = App(name="regard", default_parameter=NO_NEGATIVES)
    parser.command(add_options(lambda: None, get_any_action(name), build_action_options(find_actions(name))), name=name)
    return parser


def get_action(name: str, run: Path) -> type[Action]:
    """Return the action of a command for a run, or raise a `RegardError` if its task does not have the command."""
    from regard.tasks.loading import get_run_task

    if is_hugging_face(run):
        return get_hugging_face_action(name, run)
    if other_task := describe_other_task(name, run):
        raise RegardError(other_task)
    return find_actions(name)[get_run_task(run).name]


def describe_other_task(name: str, run: Path) -> str | None:
    """Return which tasks a command is for, if the task of a run does not have it; otherwise None."""
    from regard.tasks.loading import get_run_task

    task, actions = get_run_task(run), find_actions(name)
    if task.name in actions:
        return None
    return f"{name} is for the task {' or '.join(actions)}; {run} is of the task {task.name}"


def describe_other_task_option(words: Sequence[str], option: str) -> str | None:
    """Return the message for an option that only other tasks have; None if no task has it."""
    from regard.tasks.loading import get_run_task

    name, key = words[0], option.lstrip("-").replace("-", "_")
    task_names = [task for task, kind in find_actions(name).items() if key in get_field_names(kind)]
    run = parse_run(name, words[1:]) if task_names else None
    if run is None or is_hugging_face(run):
        return None
    return f"{name}: {option} is for the task {' or '.join(task_names)}; {run} is of the task {get_run_task(run).name}"


def add_options(function: Command, action: type[Action], options: Sequence[inspect.Parameter]) -> Command:
    """Give a function the parameters of a command: a run, a text if the action reads one, and options."""
    positional = inspect.Parameter.POSITIONAL_ONLY
    text = inspect.Parameter("text", positional, annotation=TEXT, default=None)
    parameters = [
        inspect.Parameter("run", positional, annotation=Annotated[Path, Parameter(help=action.run_help)]),
        *([text] if action.reads_text else []),
        *(build_argument(each) for name in action.positional for each in options if each.name == name),
        *options,
        *([keyword("ensemble", ENSEMBLE, ())] if action.takes_ensemble else []),
        keyword("device", DEVICE, "auto"),
        keyword("quiet", QUIET, False),
    ]
    return with_threads(with_parameters(function, parameters))


def build_argument(option: inspect.Parameter) -> inspect.Parameter:
    """Build the argument that can be given instead of an option; unlike some options, it cannot start with a hyphen."""
    kinds = (option.annotation.__origin__, *get_args(option.annotation.__origin__))
    is_path = any(Path in (kind, *get_args(kind)) for kind in kinds)
    remark = Parameter(name=option.name.upper(), help=f"The same as --{option.name}.", show_default=False)
    hint: Any = Annotated[Path | None, remark] if is_path else Annotated[str | None, remark]
    return inspect.Parameter(f"{option.name}_", inspect.Parameter.POSITIONAL_ONLY, annotation=hint, default=None)


def build_action_options(own: Mapping[str, type[Action]], *, brief: bool = False) -> list[inspect.Parameter]:
    """Return the options of a command, grouped by task if only some tasks have them.

    Args:
        own: The action of each task that has the command.
        brief: Whether to show the help of one task where it differs between tasks.
    """
    merged = []
    for key, spec in merge_options(own.items()).items():
        remark = Parameter(help=list(spec.help.values())[-1] if brief else spec.meaning)
        if len(spec.help) < len(own):
            remark = Parameter(help=spec.meaning, group=Group(f"{TASK_GROUP}{' or '.join(spec.help)}"))
        merged.append(keyword(key, Annotated[spec.hint, remark], spec.default))
    return merged


def is_task_specific(option: inspect.Parameter) -> bool:
    """Return whether only some tasks have an option."""
    groups = (each.group for each in option.annotation.__metadata__ if isinstance(each, Parameter))
    return any(TASK_GROUP in repr(group) for group in groups)


def replace_aliases(words: Sequence[str]) -> list[str]:
    """Replace options that other tools name differently, such as `--num-beams` for `--beam`, by ours.

    A lone `-` among the arguments, which the parser would take for an option, becomes the option it stands for.

    Raises:
        RegardError: For an option that has a counterpart elsewhere, with what to use instead.
    """
    if not words or words[0] not in list_action_names():
        return list(words)
    actions = find_actions(words[0]).values()
    known = {name.replace("_", "-") for action in actions for name in get_field_names(action)}
    positional = get_any_action(words[0]).positional
    end = words.index("--") if "--" in words else len(words)
    replaced = [words[0]]
    for word in words[1:end]:
        typed, equals, value = word.removeprefix("--").partition("=")
        name = typed.replace("_", "-")
        if word.startswith("--") and typed not in known:
            if hint := aliases.OPTION_HINTS.get(words[0], {}).get(name):
                raise RegardError(f"{words[0]}: unknown option --{name}; {hint}")
            name = next((option for option in aliases.OPTIONS.get(name, ()) if option in known), name)
            word = f"--{name}{equals}{value}"
        if word == "-" and positional and not replaced[-1].startswith("-"):
            word = f"--{positional[0]}=-"
        replaced.append(word)
    if get_any_action(words[0]).reads_text:
        check_option_names(replaced)
    return [*replaced, *words[end:]]


def check_option_names(words: Sequence[str]) -> None:
    """Raise a `RegardError` for an unknown option, which would be taken for the text of a command that reads one."""
    arguments = build_parser(words[0])[words[0]].assemble_argument_collection()
    known = {name: argument for argument in arguments for name in argument.names}
    previous: Any = None  # the option before, if it takes the next word
    for word in words[1:]:
        name = word.partition("=")[0]
        if previous is None and re.fullmatch(r"--[a-z][a-z-]*", name) and name not in {*known, *HELP, "--version"}:
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            hint = f"did you mean {near[0]}?" if near else f"see regard {words[0]} --help"
            raise RegardError(f"{words[0]}: unknown option {name}; {hint} (to use it as the text, put -- before it)")
        previous = known.get(word) if word in known and known[word].hint is not bool else None


def run_action(action: Action, invocation: Invocation, ensemble: Sequence[Path]) -> None:
    """Check the options, load the run, alone or with the others of an ensemble, and run the action."""
    from regard.cli.devices import resolve_device

    action.check()
    device = resolve_device(invocation.device)
    predictor = load_model(invocation.run, ensemble, device)
    if not invocation.quiet and not is_hugging_face(invocation.run):
        for folder in (invocation.run, *ensemble):
            for note in describe_unfinished(folder):
                print_message(note)
    action.run(predictor, replace(invocation, device=device))


def describe_unfinished(folder: Path) -> Iterator[str]:
    """Yield notes on a run without a validation, and on a folder of runs that are not all trained."""
    from regard.data.pair_check import pluralize

    planned, trained = list_planned_members(folder), list_members(folder)
    if planned is not None and trained is not None and len(trained) < len(planned):
        yield (
            f"note: {folder}: {len(trained)} of {pluralize(len(planned), 'seed')} loaded, the rest are not trained yet "
            f"(to train them: regard train --out {folder})"
        )
    for run in [folder] if trained is None else trained:
        unvalidated = Run(run).read_card().get("unvalidated")
        if isinstance(unvalidated, dict):
            yield f"note: {run}: training stopped at step {unvalidated.get('step')}, before the first validation"


def load_model(run: Path, ensemble: Sequence[Path], device: str) -> Any:
    """Load a run, an ensemble of runs, or a local Hugging Face model."""
    if is_hugging_face(run):
        if ensemble:
            raise RegardError(f"--ensemble combines runs made by regard train, got {run}")
        from regard.interop.hugging_face import load_hugging_face

        return load_hugging_face(get_folder(run), device)
    from regard.tasks.loading import load

    return load([run, *ensemble] if ensemble else run, device)
