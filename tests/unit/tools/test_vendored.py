from __future__ import annotations

from tools.vendored import with_component


def test_the_library_in_the_wheel_is_a_dependency_of_the_package() -> None:
    bill = {
        "metadata": {"component": {"bom-ref": "root", "name": "streamgroup"}},
        "components": [{"bom-ref": "rich==1", "name": "rich"}],
        "dependencies": [{"ref": "rich==1"}, {"ref": "root", "dependsOn": ["rich==1"]}],
    }
    found = with_component(bill)
    (added,) = (each for each in found["components"] if each["name"] == "uplot")
    assert added["purl"] == f"pkg:npm/uplot@{added['version']}"
    assert added["licenses"] == [{"license": {"id": "MIT"}}]
    assert {each["ref"]: each.get("dependsOn", []) for each in found["dependencies"]} == {
        added["bom-ref"]: [],
        "rich==1": [],
        "root": [added["bom-ref"], "rich==1"],
    }
    assert bill["components"] == [{"bom-ref": "rich==1", "name": "rich"}]
