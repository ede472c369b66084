"""Watch models of Hugging Face Transformers: for a while, their attention is `attend`.

Transformers looks up its attention by name, and its masks by the same name. While a
model is watched that name is "regard", in all its configs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from regard.attention.shared import shared, uncompiled
from regard.attention.watch import report_reordering
from regard.errors import RegardError
from regard.interop.transformers_attention import attention, caches
from regard.interop.transformers_masks import rule_mask

NAME = "regard"


@contextmanager
def adapted(model: nn.Module) -> Iterator[None]:
    """Let every attention of Transformers inside a model call `attend`; nothing is compiled meanwhile."""
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    check_version()
    for each in models:
        check_interface(each)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, rule_mask)
    with ExitStack() as stack:
        stack.enter_context(uncompiled())  # generate compiles steps with a static cache
        for config in configs_of(model):
            stack.enter_context(shared(id(config), partial(changed, config, "_attn_implementation_internal", NAME)))
        for each in models:
            stack.enter_context(shared(id(each), partial(telling_of_beams, each)))
            for hook in follow_caches(each):
                stack.callback(hook.remove)
        yield


def check_version() -> None:
    """Raise a `RegardError` for a Transformers that asks for its masks in another way."""
    if "q_length" not in inspect.signature(sdpa_mask).parameters:
        raise RegardError(f"watch: found Transformers {transformers.__version__}; 5.4 or newer is needed")


def check_interface(model: PreTrainedModel) -> None:
    """Raise a `RegardError` for a model of Transformers whose attention is its own."""
    kinds = [kind for kind in type(model).__mro__ if issubclass(kind, PreTrainedModel)]
    theirs = next((kind for kind in kinds if kind.__module__.startswith("transformers.models.")), None)
    if theirs is not None and not theirs._can_set_attn_implementation():
        raise RegardError(
            f"watch: {theirs.__name__} does not look up its attention in Transformers' AttentionInterface, "
            "so that it cannot be seen; watch a part that does"
        )


def configs_of(model: nn.Module) -> list[PreTrainedConfig]:
    """Every config in which a module may look up its attention, those inside other configs too."""
    found: dict[int, PreTrainedConfig] = {}
    to_see = [getattr(module, "config", None) for module in model.modules()]
    while to_see:
        config = to_see.pop()
        if isinstance(config, PreTrainedConfig) and id(config) not in found:
            found[id(config)] = config
            to_see += [getattr(config, name, None) for name in config.sub_configs]
    return list(found.values())


@contextmanager
def changed(thing: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute of something another value for a while."""
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, before)


@contextmanager
def telling_of_beams(model: PreTrainedModel) -> Iterator[None]:
    """Tell those that watch whenever `generate` reorders a cache, after each step of a beam.

    A model may have a method for it, `_reorder_cache`, which `generate` prefers to that of the cache.
    """
    own, before = getattr(model, "_reorder_cache", None), vars(model).get("_reorder_cache")

    def reorder(cache: Any, rows: Tensor) -> Any:
        report_reordering()
        if own is not None:
            return own(cache, rows)
        cache.reorder_cache(rows)
        return cache

    model._reorder_cache = reorder  # type: ignore[assignment]
    try:
        yield
    finally:
        del model._reorder_cache  # a method of its class comes to light again
        if before is not None:
            model._reorder_cache = before


def follow_caches(model: PreTrainedModel) -> Iterator[Any]:
    """Hooks that tell whether the models that run were given a cache."""

    def enter(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        found = any(isinstance(each, Cache) for each in (*given, *named.values()))
        caches.set((*caches.get(), found))

    def leave(*_: Any) -> None:
        caches.set(caches.get()[:-1])

    yield model.register_forward_pre_hook(enter, with_kwargs=True)
    yield model.register_forward_hook(leave, always_call=True)
