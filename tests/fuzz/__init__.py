"""A fuzzer of everything that regard reads: broken files may only succeed or raise a `RegardError`.

`make fuzz` runs it; `tests/test_fuzz.py` runs a small part of it. `targets.TARGETS` lists what is fuzzed.
"""
