"""Train Transformers on letters to phones with positions that reach the cross-attention, or do not.

    python benchmarks/rotary.py DATA --cases g2p-fre-800 --seeds 0 1

DATA is the folder of `benchmarks/defaults.py`, whose part `choice` is used: the training data without a tenth, scored
on that tenth. The rotations of rotary positions are left out of the cross-attention by replacing what the layer calls.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from defaults import Trial, build_cases, run_trial

from regard.layers.attention import MultiHeadAttention


@contextmanager
def leave_cross_attention_unturned() -> Iterator[None]:
    """Compare queries and keys of different sequences as they are, without their positions."""
    forward, remember = MultiHeadAttention.forward, MultiHeadAttention.remember

    def attend_unturned(self: MultiHeadAttention, query: Any, keys: Any = None, values: Any = None, **rest: Any) -> Any:
        turns = {} if keys is None else {"turn": None, "key_turn": None}
        return forward(self, query, keys, values, **{**rest, **turns})

    def remember_unturned(self: MultiHeadAttention, keys: Any, values: Any = None, **_: Any) -> Any:
        return remember(self, keys, values)

    with (
        patch.object(MultiHeadAttention, "forward", attend_unturned),
        patch.object(MultiHeadAttention, "remember", remember_unturned),
    ):
        yield


VARIANTS: dict[str, tuple[str, Callable[[], AbstractContextManager[None]]]] = {
    "sinusoidal": ("--positions sinusoidal", nullcontext),
    "rotary in self-attention alone": ("--positions rotary", leave_cross_attention_unturned),
    "rotary": ("--positions rotary", nullcontext),
}


def main() -> None:
    """Print one JSON object per training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cases", nargs="*", default=["g2p-fre-800"])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--options", default="", help="further options of regard train")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    for case in (case for case in build_cases(arguments.data, "choice") if case.name in arguments.cases):
        for seed in arguments.seeds:
            for name, (options, patched) in VARIANTS.items():
                with patched():
                    trial = Trial(case, f"--model transformer {options} {arguments.options}", seed)
                    record = run_trial(trial, arguments.device)
                print(json.dumps({"positions": name, **record}), flush=True)


if __name__ == "__main__":
    main()
