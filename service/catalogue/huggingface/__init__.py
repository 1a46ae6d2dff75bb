"""Which model does a Hugging Face config.json describe?"""

from service.catalogue.huggingface.importing import Imported, import_config

__all__ = ["Imported", "import_config"]
