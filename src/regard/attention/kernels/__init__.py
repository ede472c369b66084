"""Attention kernels, one per file; `dispatch.KERNELS` lists them in order of preference."""
