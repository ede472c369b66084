"""The checker of shapes and types at run time: as in static typing, an int will do for a float.

jaxtyping's own decorator checks every argument twice and takes longer than most functions do. This one checks the same
once: beartype sees arguments and result, and where a signature has shapes, sizes are compared within one call.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintViolation

Checker = Callable[[Any], Any]

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
jaxtyped = jaxtyping.jaxtyped


def check(target: Any = None, *, typechecker: Checker) -> Any:
    """What the import hook puts upon every function and class, in place of `jaxtyping.jaxtyped`."""
    if target is None:
        return functools.partial(check, typechecker=typechecker)
    if inspect.isclass(target):
        if is_dataclass(target) and not hasattr(target.__init__, "__wrapped__"):
            target.__init__ = check(target.__init__, typechecker=typechecker)  # type: ignore[method-assign]
        return target
    if not isinstance(target, FunctionType) or inspect.isgeneratorfunction(target):
        return jaxtyped(target, typechecker=typechecker)
    return check_calls(target, typechecker)


def check_calls(function: FunctionType, typechecker: Checker) -> Any:
    """A function whose arguments and result are checked, unless a test has turned that off."""
    hints = {name: resolve(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    typed = typechecker(with_hints(function, hints))
    has_shapes = any(map(has_shape, hints.values()))

    @functools.wraps(function)
    def checked_function(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if not has_shapes:
            return typed(*args, **kwargs)
        with jaxtyped("context"):
            try:
                return typed(*args, **kwargs)
            except BeartypeCallHintViolation:
                jaxtyping.print_bindings()
                raise

    return checked_function


def with_hints(function: FunctionType, hints: dict[str, Any]) -> FunctionType:
    """The same function, its annotations given as what they mean."""
    code, names = function.__code__, function.__globals__
    same = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
    same.__qualname__, same.__module__, same.__kwdefaults__ = (
        function.__qualname__,
        function.__module__,
        function.__kwdefaults__,
    )
    same.__annotations__ = hints
    return same


def resolve(hint: Any, names: dict[str, Any]) -> Any:
    """A hint without strings in it; where it has names that are not known yet, anything will do."""
    holder = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(holder, names, include_extras=True)["hint"]
    except Exception:
        return Any


def has_shape(hint: Any) -> bool:
    """Whether an array of some shape stands in a hint."""
    return (inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)) or any(map(has_shape, get_args(hint)))


jaxtyping.jaxtyped = check  # type: ignore[assignment]  # of which the import hook needs no more
