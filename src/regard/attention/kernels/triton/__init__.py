"""Kernels written in Triton, for GPUs; with `TRITON_INTERPRET=1` they run on a CPU, for tests."""
