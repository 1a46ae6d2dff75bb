"""The client works where only httpx and annotated-types are installed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

INSTALLED = {
    "annotated_types",
    "anyio",
    "certifi",
    "h11",
    "httpcore",
    "httpx",
    "idna",
    "service",
    "sniffio",
    "typing_extensions",
}
"""annotated-types, httpx and what they need."""

ALONE = """
import sys
from importlib.abc import MetaPathFinder

class OnlyInstalled(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {installed!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyInstalled())
from service.client import Client, Recipe
with Client({address!r}) as client:
    found = client.estimate(
        {{"model": "llama-3.1-8b", "recipe": Recipe(sequence_length=8192), "cluster": {{"gpu": "h100", "gpus": 8}}}},
        explain=True,
    )
    models = list(client.models.rows())
print(found.parameters.total, len(models) > 50)
print(*sys.modules)
"""


def test_the_client_answers_without_the_packages_of_the_service(address: str) -> None:
    script = ALONE.format(installed=INSTALLED, address=f"http://{address}")
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answer, loaded = ran.stdout.splitlines()
    assert answer == "8030261248 True"
    assert not {"fastapi", "numpy", "pydantic", "sqlalchemy", "uvicorn"} & set(loaded.split())
