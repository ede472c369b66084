"""The kernels: one file each, and `table.KERNELS`, which lists them in the order in which they are asked."""
