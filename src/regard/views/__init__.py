"""Pictures of attention; what draws them is imported only when something is drawn."""
