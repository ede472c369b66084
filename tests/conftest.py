import torch
from hypothesis import settings

settings.register_profile("regard", deadline=None, derandomize=True)  # a slow machine fails no test, and a run repeats
settings.load_profile("regard")

torch.set_num_threads(1)  # the tests run side by side, one on each core
