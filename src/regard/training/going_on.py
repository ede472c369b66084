"""What a run that goes on, or starts from another, takes over, and what must not differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.recipe import Recipe, marked
from regard.run import Run, checkpoints_of
from regard.settings import Table, shown
from regard.text import Tokenizers


def going_on_from(run: Run, table: Mapping[str, Any], kind: type[Recipe]) -> Table:
    """The recipe of a run that goes on: what is not said again stays as it was, but for data, which are said as one."""
    before = run.read_recipe()
    name, named = before.get("model", {}).get("name"), table.get("model", {}).get("name")
    if named not in (None, name):
        raise RegardError(f"{run.path}: was begun with the model {name}, not {named}; choose another --out")
    for section, name in marked("origin", [kind]):
        if name in table.get(section, {}):
            before[section] = {}
    return {section: {**before.get(section, {}), **table.get(section, {})} for section in {**before, **table}}


def started_from(run: Run, start: Run | None) -> Run | None:
    """The run that one that goes on was started from; another is refused."""
    before = run.read_card().get("from")
    if start is not None and (before is None or start.path.resolve() != Path(before).resolve()):
        raise RegardError(
            f"{run.path}: was begun {f'from {before}' if before else 'without --from'}; choose another --out"
        )
    return Run(Path(before)) if before and not checkpoints_of(run) else None


def tuned(table: Mapping[str, Any], start: Run | None, where: str) -> Table:
    """A recipe with text and model of the run that it starts from."""
    if start is None:
        return dict(table)
    start.read_card()
    before = start.read_recipe()
    if "text" in table:
        raise RegardError(f"{where}: [text] comes from {start.path}; leave it out")
    return {**table, "text": before["text"], "model": {**before["model"], **table.get("model", {})}}


def check_settings(run: Run, recipe: Recipe) -> None:
    """Raise a `RegardError` if a run was begun with other settings."""
    before, now = flat(run.read_recipe()), flat(recipe.table())
    may_change, read_once = (
        {".".join(each) for each in marked(mark, [type(recipe)])} for mark in ("may_change", "read_once")
    )

    def differs(name: str) -> bool:
        """Whether a setting is another one; a file that is read at the start may be found elsewhere by now."""
        moved = name in read_once and before.get(name) is not None and now.get(name) is not None
        return before.get(name) != now.get(name) and name not in may_change and not moved

    differing = sorted(filter(differs, before.keys() | now.keys()))
    if differing:
        name = differing[0]
        raise RegardError(
            f"{run.path}: was begun with {name} = {shown(before.get(name))}, not {shown(now.get(name))}"
            f"{f', and {len(differing) - 1} more settings differ' if len(differing) > 1 else ''}; choose another --out"
        )


def check_data(run: Run, sha256: str) -> None:
    """Raise a `RegardError` if a run was begun with other data."""
    if run.read_card().get("data", {}).get("sha256") != sha256:
        raise RegardError(f"{run.path}: was begun with other data; choose another --out, or --from {run.path}")


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one with dotted names; lists as tuples."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = tuple(value) if isinstance(value, list) else value
    return found


def tokenizers_of(run: Run) -> Tokenizers:
    """The tokenizers of a run."""
    run.check(run.tokenizer_file)
    return Tokenizers.load(run.tokenizer_file)
