"""Reads tasks with SkyPilot's own parser."""

import json
import sys


def main() -> None:
    import sky
    import yaml

    found = []
    for content in json.load(sys.stdin):
        task = sky.Task.from_yaml_config(yaml.safe_load(content))
        (resources,) = task.resources
        found.append({"nodes": task.num_nodes, "gpus": sum(resources.accelerators.values()), "run": task.run})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
