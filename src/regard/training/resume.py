"""Resume a run, or start from another run: which settings carry over and which must match."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.checkpoint import list_all_checkpoints, list_checkpoints
from regard.errors import RegardError
from regard.models import MODELS
from regard.recipe import Recipe, find_marked_settings, get_model_fields
from regard.run import Run
from regard.settings import Table, format_value
from regard.text import TokenizerPair


def resume_recipe(run: Run, table: Mapping[str, Any], recipe_type: type[Recipe]) -> Table:
    """Merge new settings into the recipe of a run to resume.

    A data source replaces all of its section but what was chosen from the data.
    """
    saved = run.read_recipe()
    name, requested_name = saved.get("model", {}).get("name"), table.get("model", {}).get("name")
    if requested_name not in (None, name):
        raise RegardError(
            f"{run.path}: cannot resume: run was started with model {name}, got {requested_name}; choose another --out"
        )
    for section, name in find_marked_settings("origin", [recipe_type]):
        if name in table.get(section, {}):
            kept = find_marked_settings("from_data", [recipe_type])
            saved[section] = {key: value for key, value in saved.get(section, {}).items() if (section, key) in kept}
    return {section: {**saved.get(section, {}), **table.get(section, {})} for section in {**saved, **table}}


def find_base_run(run: Run, base: Run | None) -> Run | None:
    """Return the run that a resumed run was started from; raise a `RegardError` if `base` is another one."""
    base_path = run.read_card().get("from")
    if base is not None and (base_path is None or base.path.resolve() != Path(base_path).resolve()):
        start = f"with --from {base_path}" if base_path else "without --from"
        raise RegardError(f"{run.path}: cannot resume: run was started {start}; choose another --out")
    return Run(Path(base_path)) if base_path and not list_checkpoints(run) else None


def apply_base_recipe(table: Mapping[str, Any], base: Run | None, recipe_name: str) -> Table:
    """Return a recipe with the text and model settings of the run it starts from."""
    if base is None:
        return dict(table)
    base.read_card()
    base_recipe = base.read_recipe()
    if "text" in table:
        raise RegardError(f"{recipe_name}: [text] cannot be combined with --from; it is taken from {base.path}")
    return {**table, "text": base_recipe["text"], "model": {**base_recipe["model"], **table.get("model", {})}}


def check_same_settings(run: Run, recipe: Recipe) -> None:
    """Raise a `RegardError` if a run was started with other settings; a default may be given or not."""
    defaults = get_model_defaults(recipe.model["name"])
    saved, current = ({**defaults, **flatten_table(table)} for table in (run.read_recipe(), recipe.to_table()))
    may_change, read_once = (
        {".".join(setting) for setting in find_marked_settings(mark, [type(recipe)])}
        for mark in ("may_change", "read_once")
    )

    def differs(name: str) -> bool:
        """Return whether a setting differs; a file that is only read at the start may have moved."""
        moved = name in read_once and saved.get(name) is not None and current.get(name) is not None
        return saved.get(name) != current.get(name) and name not in may_change and not moved

    differing_names = sorted(filter(differs, saved.keys() | current.keys()))
    if differing_names:
        name = differing_names[0]
        others = len(differing_names) - 1
        more = f", and {others} more setting{'s differ' if others > 1 else ' differs'}" if others else ""
        only_training = all(name.startswith("training.") for name in differing_names)
        fine_tune = f", with --from {run.path} to start from its parameters" if only_training else ""
        raise RegardError(
            f"{run.path}: cannot resume: run was started with {name} = {format_value(saved.get(name))}, "
            f"got {format_value(current.get(name))}{more}; choose another --out{fine_tune}"
        )


def get_model_defaults(name: str) -> Table:
    """Return the settings of a preset that the recipe leaves unset, by dotted name."""
    fields = {key: field.default for key, field in get_model_fields(name).items()}
    return flatten_table({"model": {**fields, **MODELS[name].settings}})


def check_steps(run: Run, steps: int) -> None:
    """Raise a `RegardError` if a run has already made more steps."""
    newer = (checkpoint for checkpoint in reversed(list_all_checkpoints(run)) if checkpoint.step > steps)
    newest = next((checkpoint for checkpoint in newer if checkpoint.is_intact()), None)
    if newest is not None:
        made = f"run already has {newest.step:,} steps, more than the {steps:,} requested"
        raise RegardError(f"{run.path}: {made}; pass a larger --steps")


def check_data_exists(run: Run, recipe: Recipe) -> None:
    """Raise a `RegardError` if a data file of a run to resume is missing, except one that is only read at the start."""
    table = recipe.to_table()
    paths, read_once = (find_marked_settings(mark, [type(recipe)]) for mark in ("path", "read_once"))
    for section, name in sorted(paths - read_once):
        path = table.get(section, {}).get(name)
        if isinstance(path, str) and os.path.isabs(path) and not os.path.exists(path):
            raise RegardError(
                f"{run.path}: cannot resume: {section}.{name} = {format_value(path)} is missing; "
                f"if it has moved, pass --{name.replace('_', '-')} with the new path"
            )


def check_same_data(run: Run, sha256: str) -> None:
    """Raise a `RegardError` if a run was started with other data."""
    if run.read_card().get("data", {}).get("sha256") != sha256:
        raise RegardError(
            f"{run.path}: cannot resume: run was started with other data; "
            f"choose another --out, or pass --from {run.path}"
        )


def flatten_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables into one with dotted names, and lists into tuples."""
    flat_table: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat_table |= flatten_table(value, f"{prefix}{name}.")
        else:
            flat_table[f"{prefix}{name}"] = tuple(value) if isinstance(value, list) else value
    return flat_table


def load_tokenizers(run: Run) -> TokenizerPair:
    """Load the tokenizers of a run."""
    return TokenizerPair.load(run.find_file(run.tokenizer_file.name))
