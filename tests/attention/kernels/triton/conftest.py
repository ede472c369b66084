"""Import Triton for its interpreter where there is no GPU, before any test imports it in another way."""

import importlib.util
import os
from unittest.mock import patch

import torch

if importlib.util.find_spec("triton") is not None and not torch.cuda.is_available():
    with patch.dict(os.environ, TRITON_INTERPRET="1"):
        import triton.language  # noqa: F401  its own functions, such as max, are for the interpreter from now on
