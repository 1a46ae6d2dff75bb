"""How does a launcher or a training framework want a recipe and a layout written? One file for each."""
