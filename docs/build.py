"""Draws the pictures of these pages: `make docs`."""

from pathlib import Path

from regard.views.regression import draw_regression

PICTURES = Path(__file__).parent / "pictures"

if __name__ == "__main__":
    print(draw_regression(PICTURES / "regression.png"))
