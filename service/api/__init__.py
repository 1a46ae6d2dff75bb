"""How the service speaks HTTP: the only room that imports FastAPI."""
