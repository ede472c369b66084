"""Where a model looks: from a model and a text to an `AttentionMap`, which every view draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack, get_args, overload

from torch import nn

from regard.errors import RegardError
from regard.loading import AnyPredictor
from regard.looking.hugging_face import look_at_transformer
from regard.looking.runs import look_at_run
from regard.looking.wanted import Wanted
from regard.views.attention_map import AttentionMap

__all__ = ["look"]


class Options(TypedDict, total=False):
    """What `look` can be told, and describes."""

    target: str | None
    second: str | None
    context: Sequence[str] | None
    words: bool
    kind: str | None
    top: int | None
    longest: int | None


@overload
def look(model: AnyPredictor, text: str, /, **options: Unpack[Options]) -> AttentionMap: ...
@overload
def look(model: nn.Module, tokenizer: Any, text: str, /, **options: Unpack[Options]) -> AttentionMap: ...
def look(
    model: Any,
    *given: Any,
    target: str | None = None,
    second: str | None = None,
    context: Sequence[str] | None = None,
    words: bool = True,
    kind: str | None = None,
    top: int | None = None,
    longest: int | None = None,
) -> AttentionMap:
    """Where a model looks while it reads a text, and while it writes its answer to it.

    Args:
        model: What `regard.load` gave; or a model of Hugging Face Transformers, its tokenizer after it.
        given: The tokenizer, where there is one, and the text.
        target: Of a model that answers a source, the answer to look at; the one it gives unless told otherwise.
        second: For a classifier of pairs, the second text.
        context: For a classifier of dialogues, the texts before, the oldest first.
        words: Merge tokens that are parts of words to words; characters and special tokens stay as they are.
        kind: Which attention, where a model has several: "cross" from target to source (unless told otherwise),
            "encoder" within the source, "decoder" within the target; of a classifier "pooling" (unless told
            otherwise), or "self" between words, which models of one text have alone.
        top: Keep only so many weights of each row; all unless told otherwise, or the text has more than 1,000 tokens.
        longest: Of the answer that a model gives, so many tokens at the most; twice those of its source and 50 more
            unless told otherwise.

    Example:
        >>> regard.look(regard.load("runs/dates"), "vendredi 3 mars 2017").picture("look.png")
        >>> regard.look(hf_model, hf_tokenizer, "The animal did not cross it").html("look.html")
    """
    runs = isinstance(model, get_args(AnyPredictor))
    if not runs and not isinstance(model, nn.Module):
        raise RegardError(f"look: found {type(model).__name__}; give what regard.load gives, or a Transformers model")
    wanted = "a text" if runs else "a tokenizer and a text"
    if len(given) != (1 if runs else 2) or not isinstance(given[-1], str):
        found = ", ".join(type(each).__name__ for each in given) or "nothing"
        raise RegardError(f"look: found {found} after the model; {wanted} is needed")
    if not given[-1].strip():
        raise RegardError("look: the text is empty")
    asked = Wanted(target, second, context, words, kind, top, longest)
    if runs:
        return look_at_run(model, given[0], asked)
    return look_at_transformer(model, given[0], given[1], asked)
