"""One file for each format that can be read back as a recipe and a layout; `formats.py` here lists them."""
