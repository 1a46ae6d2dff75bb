"""Reads tasks with dstack's own parser."""

import json
import sys


def main() -> None:
    import yaml
    from dstack._internal.core.models.configurations import parse_apply_configuration

    found = []
    for content in json.load(sys.stdin):
        task = parse_apply_configuration(yaml.safe_load(content))
        gpu = task.resources.gpu
        found.append({"nodes": task.nodes, "gpus": gpu.count.min, "names": gpu.name, "run": "\n".join(task.commands)})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
