"""How does a launcher or a training framework want a recipe and a layout written, and how is it read back?"""
