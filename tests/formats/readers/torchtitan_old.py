"""Reads TOML with torchtitan 0.2's own parser, its package entered past its first import."""

import json
import sys
import tempfile
from types import ModuleType


def main() -> None:
    package = ModuleType("torchtitan")
    package.__path__ = [f"{sys.argv[1]}/torchtitan"]
    sys.modules["torchtitan"] = package
    from torchtitan.config import ConfigManager

    found = []
    for content in json.load(sys.stdin):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(content)
            file.flush()
            config = ConfigManager().parse_args(["--job.config_file", file.name])
        parallelism, training = vars(config.parallelism), vars(config.training)
        found.append({**parallelism, **training, "mode": config.activation_checkpoint.mode})
    json.dump(found, sys.stdout, default=str)


if __name__ == "__main__":
    main()
