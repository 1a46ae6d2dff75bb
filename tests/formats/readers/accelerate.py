"""Reads YAML with accelerate's own loader, and holds its inner names against the options of accelerate launch."""

import json
import sys
import tempfile


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
        kind, mixed = config.distributed_type.value, str(config.mixed_precision)
        found.append({**inner, "unknown": unknown, "type": kind, "mixed": mixed, "processes": config.num_processes})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
