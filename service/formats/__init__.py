"""Files of launchers and training frameworks: writers and readers."""
