"""Reads operators' manifests with the schemas of Kubernetes, unknown fields refused; what is of Kueue is given back."""

import json
import sys


def main() -> None:
    import kubernetes_validate
    import yaml

    foreign = []
    for content in json.load(sys.stdin):
        for manifest in yaml.safe_load_all(content):
            if "kueue" in manifest["apiVersion"]:
                foreign.append(manifest)
            else:
                kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    json.dump(foreign, sys.stdout)


if __name__ == "__main__":
    main()
