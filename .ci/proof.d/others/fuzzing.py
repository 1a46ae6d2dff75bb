"""One reader or writer of files under a coverage-guided fuzzer: a text is read, or refused by an error of the tree.

Runs where atheris can be imported: fuzzing.py TARGET FOLDER SECONDS, in which the folder keeps what reached new code.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["service"]):
    from service.calibration.tool_files import read_memory_snapshot
    from service.catalogue import shipped_catalogue
    from service.errors import TraincostError
    from service.estimator.model.counts import count_parameters
    from service.features.catalogue.price_import import ImportOptions, draft_import
    from service.features.diagnose.diagnose import diagnose
    from service.features.diagnose.schemas import read_message
    from service.features.exports.exports import export, import_file
    from service.features.measurements.importing import FORMATS as MEASUREMENT_FORMATS
    from service.features.measurements.importing import MeasurementImportQuery, text_of
    from service.features.reconcile.reconcile import read_sacct
    from service.features.reconcile.slurm import finished_jobs
    from service.formats.targets import FORMATS, TARGETS
    from service.openapi.document import COMMITTED
    from service.store.keys import UNRESTRICTED
    from service.validation.json_text import parse
    from service.validation.question_parts import read_config

from tests.api.asking import QUESTION

LONGEST_BYTES = 16_384
SLOWEST_SECONDS = 10
"""Longest that one text may take; it is traced on the way, so what takes this long takes a tenth of it elsewhere."""

CATALOGUE = shipped_catalogue()

Target = Callable[[bytes], object]


def objects(content: bytes) -> Mapping[str, Any]:
    """The JSON object of a text, as the API reads it; empty for any other value."""
    value = parse(content)
    return value if isinstance(value, dict) else {}


def picked(content: bytes, choices: list[str]) -> tuple[str, bytes]:
    """One of some names by the first byte, and the rest."""
    return choices[(content or b"\0")[0] % len(choices)], content[1:]


def text(content: bytes) -> str:
    return content.decode("utf-8", "replace").replace("\0", "")


def model_configs(content: bytes) -> None:
    count_parameters(read_config(objects(content), "").spec)


def framework_files(content: bytes) -> None:
    name, rest = picked(content, [*FORMATS])
    import_file(name, text(rest))


def measurement_files(content: bytes) -> None:
    name, rest = picked(content, [*MEASUREMENT_FORMATS])
    next(row for key, row in MEASUREMENT_FORMATS.items() if key == name).read(
        text_of(rest), MeasurementImportQuery(device="NVIDIA H100")
    )


def memory_snapshots(content: bytes) -> None:
    read_memory_snapshot(text(content), "NVIDIA H100", 80e9)


def accounting(content: bytes) -> None:
    finished_jobs(read_sacct(text(content)).records)


def messages(content: bytes) -> None:
    read_message(text(content), None)


def diagnoses(content: bytes) -> None:
    diagnose({**QUESTION, "message": text(content)}, CATALOGUE)


def exported_files(content: bytes) -> None:
    name, rest = picked(content, [*TARGETS])
    version, rest = picked(rest, [*TARGETS[name].versions])
    export(objects(rest), CATALOGUE, TARGETS[name], version)


def priced_tables() -> Target:
    """The import of prices, which it only tries."""

    def target(content: bytes) -> None:
        for mark in (".", ","):
            draft_import(content, ImportOptions(mark=mark, is_trial=True, skips=True, caller=UNRESTRICTED), CATALOGUE)

    return target


TARGETS_BY_NAME: Mapping[str, Callable[[], Target]] = {
    "model-configs": lambda: model_configs,
    "framework-files": lambda: framework_files,
    "measurement-files": lambda: measurement_files,
    "memory-snapshots": lambda: memory_snapshots,
    "prices": priced_tables,
    "accounting": lambda: accounting,
    "messages": lambda: messages,
    "diagnoses": lambda: diagnoses,
    "exported-files": lambda: exported_files,
}
"""By name, what is tried."""

EXAMPLES: Mapping[str, tuple[str, int]] = {
    "model-configs": ("importModel", 0),
    "framework-files": ("createImport", 1),
    "measurement-files": ("importMeasurementFile", 1),
    "prices": ("importPrices", 0),
    "accounting": ("createReconciliation", 0),
    "exported-files": ("createExport", 2),
}
"""Operation whose examples are where a target begins, and how many bytes choose before the text."""

SEEDS: Mapping[str, tuple[str, ...]] = {
    "memory-snapshots": (
        '{"segments": [{"device": 0, "total_size": 2, "allocated_size": 1, "blocks": []}], "device_traces": []}',
    ),
    "messages": (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is "
        "free. Including non-PyTorch memory, this process has 78.08 GiB memory in use. Of the allocated memory 74.50 "
        "GiB is allocated by PyTorch, and 2.10 GiB is reserved by PyTorch but unallocated.",
    ),
}


def seeds(name: str) -> Iterator[bytes]:
    """Where a target begins."""
    yield from (seed.encode() for seed in SEEDS.get("messages" if name == "diagnoses" else name, ()))
    if name not in EXAMPLES:
        return
    operation_id, choosing = EXAMPLES[name]
    for methods in json.loads(COMMITTED.read_bytes())["paths"].values():
        for operation in methods.values():
            if operation["operationId"] == operation_id:
                for content in operation["requestBody"]["content"].values():
                    for example in content.get("examples", {}).values():
                        value = example["value"]
                        said = value if isinstance(value, str) else json.dumps(value)
                        yield from (
                            bytes([choice]) * choosing + said.encode() for choice in range(12 if choosing else 1)
                        )


def main() -> None:
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    for number, seed in enumerate(seeds(name)):
        (folder / f"seed-{number}").write_bytes(seed)
    target = TARGETS_BY_NAME[name]()

    def one(content: bytes) -> None:
        try:
            target(content)
        except TraincostError:
            return

    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST_BYTES}", f"-timeout={SLOWEST_SECONDS}"]
    kept = [f"-artifact_prefix={folder}/crash-", "-print_final_stats=1", "-rss_limit_mb=4096", str(folder)]
    atheris.Setup([sys.argv[0], *options, *kept], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
