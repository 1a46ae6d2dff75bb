"""Reads YAML with accelerate's own loader, and holds its inner names against the options of accelerate launch."""

import json
import sys
import tempfile
from typing import Any


def judged(config: Any) -> str:
    """What accelerate's own ParallelismConfig refuses of the degrees in a job of as many processes."""
    from types import SimpleNamespace

    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import DistributedType

    at = "parallelism_config_"
    sizes = {name.removeprefix(at): value for name, value in (config.parallelism_config or {}).items()}
    sizes = {name: value for name, value in sizes.items() if name.endswith("_size")}
    is_fsdp = config.distributed_type == DistributedType.FSDP
    is_fsdp2 = is_fsdp and (config.fsdp_config or {}).get("fsdp_version") == 2
    if not sizes and not is_fsdp2:
        return ""
    job = SimpleNamespace(
        multi_device=config.num_processes > 1, num_processes=config.num_processes, is_fsdp2=is_fsdp2,
        distributed_type=config.distributed_type, is_main_process=True,
    )  # fmt: skip
    try:
        ParallelismConfig(**sizes)._validate_accelerator(job)
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    options = {option for action in launch_command_parser()._actions for option in action.option_strings}
    found = []
    for content in json.load(sys.stdin):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(content)
            file.flush()
            config = load_config_from_file(file.name)
        inner = {**(config.fsdp_config or {}), **(config.parallelism_config or {})}
        unknown = [name for name in inner if f"--{name}" not in options]
        refused = judged(config)
        kind, mixed = config.distributed_type.value, str(config.mixed_precision)
        found.append(
            {
                **inner,
                "unknown": unknown,
                "type": kind,
                "mixed": mixed,
                "refused": refused,
                "processes": config.num_processes,
            }
        )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
