"""Benchmarks: time and memory of regard compared with plain PyTorch on this machine."""
