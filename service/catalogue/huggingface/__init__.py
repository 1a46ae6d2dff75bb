"""Models from Hugging Face config.json files."""

from service.catalogue.huggingface.importing import Imported, import_config

__all__ = ["Imported", "import_config"]
