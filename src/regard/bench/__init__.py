"""What attention costs, measured on this machine beside what one would write in plain PyTorch."""
