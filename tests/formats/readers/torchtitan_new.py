"""Reads flags with torchtitan 0.3's own parser. Runs where it is unpacked."""

import json
import sys
from dataclasses import asdict


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    from torchtitan.config import ConfigManager

    found = []
    for words in json.load(sys.stdin):
        config = ConfigManager().parse_args(words)
        mode = type(config.activation_checkpoint).__qualname__.partition(".")[0]
        found.append({**asdict(config.parallelism), **asdict(config.training), "mode": mode})
    json.dump(found, sys.stdout, default=str)


if __name__ == "__main__":
    main()
