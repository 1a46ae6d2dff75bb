"""Reads words of torchrun with torch's own parser. Runs where torch is installed; knows nothing of the service."""

import json
import sys


def main() -> None:
    from torch.distributed.run import get_args_parser

    found = []
    for words in json.load(sys.stdin):
        read = get_args_parser().parse_args(words)
        found.append(
            {
                "nodes": read.nnodes,
                "gpus_each": read.nproc_per_node,
                "program": [read.training_script, *read.training_script_args],
            }
        )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
