"""Views of attention maps: terminal, SVG, PNG, HTML and notebook. Drawing libraries are imported on first use."""
