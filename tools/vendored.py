"""Adds the JavaScript library that lies in the wheel to a bill of materials: python -m tools.vendored FILE

It checks the result against the schema of CycloneDX, by the library of the environment that releases are made in.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_VENDOR = Path(__file__).parents[1] / "streamgroup" / "monitoring" / "page" / "static" / "vendor"
_VERSION = re.compile(r"from the npm package (?P<name>\S+) (?P<version>\S+) ")
_LICENSE = re.compile(r"\((?P<license>[\w.-]+)\)")


def component() -> dict[str, Any]:
    """Return the library as CycloneDX describes it, from the file VERSION beside it."""
    note = (_VENDOR / "VERSION").read_text()
    version, license_ = _VERSION.search(note), _LICENSE.search(note)
    assert version is not None, f"{_VENDOR}/VERSION names no npm package"
    assert license_ is not None, f"{_VENDOR}/VERSION names no license"
    purl = f"pkg:npm/{version['name']}@{version['version']}"
    return {
        "bom-ref": purl,
        "description": "charts of the live page, in the wheel below streamgroup/monitoring/page/static/vendor",
        "licenses": [{"license": {"id": license_["license"]}}],
        "name": version["name"],
        "purl": purl,
        "type": "library",
        "version": version["version"],
    }


def with_component(bill: dict[str, Any]) -> dict[str, Any]:
    """Return a bill of materials with the library, on which the package depends."""
    added = component()
    ours = bill["metadata"]["component"]["bom-ref"]
    dependencies = [
        {**each, "dependsOn": sorted([*each.get("dependsOn", ()), added["bom-ref"]])} if each["ref"] == ours else each
        for each in bill["dependencies"]
    ]
    components = sorted([*bill["components"], added], key=lambda each: str(each["bom-ref"]))
    dependencies = sorted([*dependencies, {"ref": added["bom-ref"]}], key=lambda each: str(each["ref"]))
    return {**bill, "components": components, "dependencies": dependencies}


def main(file: Path) -> None:
    """Add the library to a file. Exit with the error if the result is not valid."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415  (only where releases are made)
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    text = json.dumps(with_component(json.loads(file.read_text())), indent=2) + "\n"
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        sys.exit(f"{file} would not be valid: {error}")
    file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
