"""Prints a bill of materials (CycloneDX 1.6, JSON) of the environment that runs it: its packages and the system's.

Standard library only: it runs while the image is built, in the environment that it describes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any


def python_package(found: Distribution) -> dict[str, Any]:
    """Return a distribution as a component, with the name, version and license that its metadata state."""
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    purl = f"pkg:pypi/{name}@{found.version}"
    component: dict[str, Any] = {"type": "library", "name": name, "version": found.version, "purl": purl}
    stated = found.metadata.get("License-Expression")
    if stated:
        component["licenses"] = [{"expression": stated}]
    return {**component, "bom-ref": purl}


def system_packages() -> list[dict[str, Any]]:
    """Return the packages of a Debian base; an empty list if there is no dpkg."""
    program = shutil.which("dpkg-query")
    if program is None:
        return []
    form = "${binary:Package}\t${Version}\t${Architecture}\n"
    told = subprocess.run([program, "-W", "-f", form], capture_output=True, text=True, check=True).stdout  # noqa: S603
    found = []
    for line in told.splitlines():
        name, version, machine = line.split("\t")
        purl = f"pkg:deb/debian/{name.partition(':')[0]}@{version}?arch={machine}"
        found.append({"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl})
    return found


def bill() -> dict[str, Any]:
    """Return the document."""
    ours = {component["purl"]: component for component in map(python_package, distributions(path=[_site()]))}
    python = {"type": "platform", "name": "python", "version": sys.version.split()[0], "bom-ref": "python"}
    main = next(component for component in ours.values() if component["name"] == "apsp")
    parts = [component for component in ours.values() if component is not main]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**main, "type": "application"}},
        "components": sorted([python, *parts, *system_packages()], key=lambda part: str(part["bom-ref"])),
    }


def _site() -> str:
    return str(next(Path(sys.prefix).glob("lib/python3*/site-packages")))


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
