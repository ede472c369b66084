"""SVG views, written without a drawing library; weights are stored as data attributes."""
