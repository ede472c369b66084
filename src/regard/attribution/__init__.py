"""Feature attribution: explain a prediction by attention, gradients and word removal, independent of the task."""
