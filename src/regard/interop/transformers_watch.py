"""Watch models of Hugging Face Transformers by making them call `attend`.

Transformers looks up attention functions and masks by the name in a model's config. While a
model is watched, this name is "regard" in all its configs.
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

from regard.attention.shared_context import disable_compile, share_context
from regard.attention.watch import report_reordering
from regard.errors import RegardError
from regard.interop.transformers_attention import caches, regard_attention_forward
from regard.interop.transformers_masks import build_rule_mask

IMPLEMENTATION = "regard"


@contextmanager
def adapt(model: nn.Module) -> Iterator[None]:
    """Make every Transformers attention inside a model call `attend`, with torch.compile disabled."""
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    check_version()
    for pretrained in models:
        check_interface(pretrained)
    AttentionInterface.register(IMPLEMENTATION, regard_attention_forward)
    AttentionMaskInterface.register(IMPLEMENTATION, build_rule_mask)
    with ExitStack() as stack:
        stack.enter_context(disable_compile())  # generate compiles steps with a static cache
        for config in collect_configs(model):
            stack.enter_context(
                share_context(
                    id(config), partial(override_attribute, config, "_attn_implementation_internal", IMPLEMENTATION)
                )
            )
        for pretrained in models:
            stack.enter_context(share_context(id(pretrained), partial(report_beam_reordering, pretrained)))
            for hook in register_cache_hooks(pretrained):
                stack.callback(hook.remove)
        yield


def check_version() -> None:
    """Raise a `RegardError` if Transformers is too old."""
    if "q_length" not in inspect.signature(sdpa_mask).parameters:
        raise RegardError(f"watch: expected Transformers 5.4 or newer, got {transformers.__version__}")


def check_interface(model: PreTrainedModel) -> None:
    """Raise a `RegardError` for a model that does not use Transformers' `AttentionInterface`."""
    kinds = [kind for kind in type(model).__mro__ if issubclass(kind, PreTrainedModel)]
    model_class = next((kind for kind in kinds if kind.__module__.startswith("transformers.models.")), None)
    if model_class is not None and not model_class._can_set_attn_implementation():
        raise RegardError(
            f"watch: {model_class.__name__} does not use Transformers' AttentionInterface and cannot be watched; "
            "watch a submodule that does"
        )


def collect_configs(model: nn.Module) -> list[PreTrainedConfig]:
    """Return the configs of all modules, including nested configs."""
    configs: dict[int, PreTrainedConfig] = {}
    pending = [getattr(module, "config", None) for module in model.modules()]
    while pending:
        config = pending.pop()
        if isinstance(config, PreTrainedConfig) and id(config) not in configs:
            configs[id(config)] = config
            pending += [getattr(config, name, None) for name in config.sub_configs]
    return list(configs.values())


@contextmanager
def override_attribute(target: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute inside the context, and restore it afterwards."""
    original = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, original)


@contextmanager
def report_beam_reordering(model: PreTrainedModel) -> Iterator[None]:
    """Report to watchers whenever `generate` reorders a cache, after each step of a beam search.

    `generate` calls the model's method `_reorder_cache`, if any, else that of the cache.
    """
    reorder_method, instance_method = getattr(model, "_reorder_cache", None), vars(model).get("_reorder_cache")

    def reorder(cache: Any, rows: Tensor) -> Any:
        report_reordering()
        if reorder_method is not None:
            return reorder_method(cache, rows)
        cache.reorder_cache(rows)
        return cache

    model._reorder_cache = reorder  # type: ignore[assignment]
    try:
        yield
    finally:
        del model._reorder_cache  # restores the method of the class
        if instance_method is not None:
            model._reorder_cache = instance_method


def register_cache_hooks(model: PreTrainedModel) -> Iterator[Any]:
    """Register hooks that track whether running models were given a cache; yield their handles."""

    def push_cache(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        has_cache = any(isinstance(value, Cache) for value in (*args, *kwargs.values()))
        caches.set((*caches.get(), has_cache))

    def pop_cache(*_: Any) -> None:
        caches.set(caches.get()[:-1])

    yield model.register_forward_pre_hook(push_cache, with_kwargs=True)
    yield model.register_forward_hook(pop_cache, always_call=True)
