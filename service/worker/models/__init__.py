"""How does torch run the model of a question? In plain eager modules, operation by operation as transformers does."""
