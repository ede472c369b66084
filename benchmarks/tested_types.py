"""Build the models that the tests of Transformers use, with their inputs, from a checkout of its repository."""

from __future__ import annotations

import importlib
import inspect
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from tiny_types import draw_parameters
from torch import nn
from transformers import CONFIG_MAPPING


def import_testers(checkout: Path) -> None:
    """Import what most tests import."""
    sys.path.insert(0, str(checkout))
    for path in (checkout / "tests").glob("*_tester.py"):
        importlib.import_module(f"tests.{path.stem}")


def iter_tested(checkout: Path, model_type: str, failures: list[str]) -> Iterator[tuple[nn.Module, dict[str, Any]]]:
    """Yield the models of a type that its tests build, those that generate first, each with inputs.

    Args:
        checkout: A folder with the repository of Transformers, of about the installed version.
        model_type: The type.
        failures: Where the reasons are added for which a model was not built.
    """
    built = []
    for case in iter_cases(checkout, model_type, failures):
        for kind in case.all_model_classes:
            if kind.config_class.model_type == model_type:
                built.append((case, kind))
    built.sort(key=lambda pair: "For" not in pair[1].__name__ or not hasattr(pair[1], "generate"))
    for case, kind in built:
        transformers.set_seed(0)
        importlib.import_module("tests.test_modeling_common").global_rng.seed(0)
        try:
            config, inputs = case.model_tester.prepare_config_and_inputs_for_common()
            model = kind(config).eval()
        except Exception as error:
            failures.append(f"{kind.__name__}: {type(error).__name__}: {error}")
            continue
        draw_parameters(model)
        yield model, {name: value for name, value in inputs.items() if value is not None}


def iter_cases(checkout: Path, model_type: str, failures: list[str]) -> Iterator[Any]:
    """Yield the test cases of a type, set up."""
    folder = CONFIG_MAPPING[model_type].__module__.split(".")[-2]
    for path in sorted((checkout / "tests" / "models" / folder).glob("test_modeling_*.py")):
        try:
            module = importlib.import_module(f"tests.models.{folder}.{path.stem}")
        except Exception as error:
            failures.append(f"{path.stem}: {type(error).__name__}: {error}")
            continue
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and hasattr(kind, "all_model_classes"):
                case: Any = kind(next(name for name in dir(kind) if name.startswith("test_") and is_test(kind, name)))
                try:
                    case.setUp()
                except Exception as error:
                    failures.append(f"{kind.__name__}: {type(error).__name__}: {error}")
                    continue
                if case.all_model_classes and hasattr(case, "model_tester"):
                    yield case


def is_test(kind: type, name: str) -> bool:
    """Return whether an attribute is a test."""
    return inspect.isfunction(getattr(kind, name, None))
