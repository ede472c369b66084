"""Drawings as SVG, written without a drawing library; each carries the numbers it shows."""
