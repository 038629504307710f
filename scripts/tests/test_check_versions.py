"""Each fault that check_versions finds, seeded alone, with the line that it prints."""

from __future__ import annotations

import pytest
from packaging.version import Version

import check_versions
from check_versions import check

FILE = "packages/top/pyproject.toml"


def test_a_workspace_without_a_fault_passes(tree):
    assert check(tree.root) == []


def test_a_range_must_admit_the_version_of_the_workspace(tree):
    tree.replace("packages/middle/pyproject.toml", '"0.3.0"', '"0.4.0"')
    tree.replace("packages/middle/CHANGELOG.md", "0.3.0", "0.4.0")
    assert check(tree.root) == [f"{FILE}: middle<0.4,>=0.3 excludes middle 0.4.0 of this workspace"]


def test_the_ranges_of_extras_count_too(tree):
    text = (tree.root / FILE).read_text()
    tree.write(FILE, text + '\n[project.optional-dependencies]\nmore = ["ground[engine]>=3,<4"]\n')
    assert check(tree.root) == [f"{FILE}: ground[engine]<4,>=3 excludes ground 2.1.0 of this workspace"]


def test_the_ranges_of_an_example_that_is_a_package_count_too(tree):
    file = "examples/downstream/pyproject.toml"
    tree.write(file, '[project]\nname = "mine"\ndependencies = ["ground>=2.0,<3", "middle>=0.4,<0.5"]\n')
    assert check(tree.root) == [f"{file}: middle<0.5,>=0.4 excludes middle 0.3.0 of this workspace"]


@pytest.mark.parametrize("requirement", ["middle", "middle>=0.3", "middle<0.4"])
def test_a_range_between_members_has_two_ends(tree, requirement):
    tree.replace(FILE, "middle>=0.3,<0.4", requirement)
    assert check(tree.root) == [f"{FILE}: {requirement} needs a lower and an upper bound"]


def test_a_range_stays_above_another_projects_versions(tree, monkeypatch):
    monkeypatch.setattr(check_versions, "FLOORS", {"ground": Version("2.0")})
    tree.replace(FILE, "ground>=2.0,<3", "ground>=1.9,<3")
    assert check(tree.root) == [f"{FILE}: ground<3,>=1.9 admits another project's ground; its floor is 2.0"]


def test_a_version_stays_above_another_projects_versions(tree, monkeypatch):
    monkeypatch.setattr(check_versions, "FLOORS", {"middle": Version("0.5")})
    tree.replace(FILE, "middle>=0.3,<0.4", "middle>=0.5,<0.6")
    assert check(tree.root) == [
        "middle 0.3.0 is below 0.5: another project holds the older ones",
        f"{FILE}: middle<0.6,>=0.5 excludes middle 0.3.0 of this workspace",
    ]


def test_the_floors_are_those_of_the_names_that_others_hold():
    assert {"unisim": Version("2.0"), "unilab-rl": Version("2.0")} == check_versions.FLOORS


def test_the_changelog_tells_the_version(tree):
    tree.replace("packages/middle/CHANGELOG.md", "[0.3.0]", "[0.2.9]")
    assert check(tree.root) == ["packages/middle/CHANGELOG.md: newest version is 0.2.9, but middle is 0.3.0"]


def test_every_package_has_a_changelog(tree):
    (tree.root / "packages/middle/CHANGELOG.md").unlink()
    assert check(tree.root) == ["packages/middle: has no CHANGELOG.md"]
