"""Training: loss, optimizer, schedule, loop and resuming."""
