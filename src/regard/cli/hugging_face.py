"""The commands on `hf:FOLDER`, a local folder with a Hugging Face model, where other commands take a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError
from regard.maps.options import TargetLookOptions
from regard.tasks.actions import Action
from regard.tasks.actions.heads import Heads
from regard.tasks.actions.look import Look


@dataclass(frozen=True, kw_only=True)
class LookAtHuggingFace(Look, TargetLookOptions):
    """Show the attention of a Hugging Face model; the target is for models with encoder and decoder."""


PREFIX = "hf:"

ACTIONS: dict[str, type[Action]] = {"look": LookAtHuggingFace, "heads": Heads}


def is_hugging_face(run: Path) -> bool:
    """Return whether an argument names a folder of a Hugging Face model, as `hf:FOLDER` does."""
    return str(run).startswith(PREFIX)


def get_folder(run: Path) -> Path:
    """Return the folder of `hf:FOLDER`."""
    return Path(str(run).removeprefix(PREFIX))


def get_hugging_face_action(name: str, run: Path) -> type[Action]:
    """Return the action of a command for a Hugging Face model, or raise a `RegardError`."""
    if name not in ACTIONS:
        raise RegardError(f"{name} is for runs of regard; {run} can be given to {' and '.join(ACTIONS)}")
    return ACTIONS[name]
