"""What the checked launch asks of all resources of a task that SkyPilot has read: the program is the first argument."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location


def main() -> None:
    import sky
    import yaml

    spec = spec_from_file_location("checked_launch", sys.argv[1])
    if spec is None or spec.loader is None:
        raise SystemExit("no such program")
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    tasks = [sky.Task.from_yaml_config(yaml.safe_load(content)) for content in json.load(sys.stdin)]
    json.dump([[program.job_of(task, one) for one in task.resources] for task in tasks], sys.stdout)


if __name__ == "__main__":
    main()
