"""Breaks the code that must not break, one small change at a time, and counts how many changes some test notices.

Run through `nox -s mutation`. It works on a copy; the evidence goes to `docs/results/mutation.json` and `.md`. Why a
change that no test notices is harmless is written into the JSON by hand (`why`) and kept there by later runs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
MUTMUT = str(Path(sys.executable).with_name("mutmut"))
PACKAGES = ("unilab-core", "unilab-managers")
BAR = 90.0
"""Percent of the changes of each group that must be noticed."""
GROUPS = {
    "buffers": ("unilab_managers.buffers.*",),
    "timers": (
        "unilab_core.timing",
        "unilab_managers.managers.command_manager",
        "unilab_managers.managers.event_manager",
    ),
    "selectors": ("unilab_core.reset_selectors",),
    "transaction": ("unilab_core.reset_transaction",),
}
"""Modules by what they are; `[tool.mutmut]` in pyproject.toml names their files and the tests to run."""
NOTICED = {"killed", "timeout"}


def stage(folder: Path) -> None:
    """Copies sources, tests and settings to where mutmut expects them; tests keep their places."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        module = package.replace("-", "_")
        source, tests = ROOT / "packages" / package / "src" / module, ROOT / "packages" / package / "tests"
        shutil.copytree(source, folder / "src" / module, ignore=ignored)
        shutil.copytree(tests, folder / "packages" / package / "tests", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def group_of(mutant: str) -> str:
    """Returns the group of a mutant, `<module>.<function>__mutmut_<number>`.

    Raises:
        ValueError: Its module is in no group.
    """
    module = mutant.rpartition(".")[0]
    for group, patterns in GROUPS.items():
        if any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns):
            return group
    raise ValueError(f"{mutant} belongs to no group of {sorted(GROUPS)}")


def statuses(listing: str) -> dict[str, str]:
    """Reads `<mutant>: <status>` lines."""
    pairs = (line.strip().rpartition(": ") for line in listing.splitlines() if line.strip())
    return {mutant: status for mutant, _, status in pairs}


def changed_lines(diff: str) -> tuple[str, str]:
    """Returns what a unified diff takes away and what it puts there, without indentation."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    was, now = ("\n".join(line[1:].strip() for line in lines if line[:1] == sign) for sign in "-+")
    return was, now


def function_of(mutant: str) -> str:
    """Returns `<module>.<class>.<function>` of a mutant."""
    module, _, name = mutant.rpartition(".")
    name = name.partition("__mutmut_")[0]
    return f"{module}.{name.removeprefix('xǁ').replace('ǁ', '.') if 'ǁ' in name else name.removeprefix('x_')}"


def summary(found: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns per group how many mutants there are and how many of them were noticed."""
    groups: dict[str, dict[str, Any]] = {group: {"mutants": 0, "killed": 0} for group in GROUPS}
    for mutant, status in found.items():
        counts = groups[group_of(mutant)]
        counts["mutants"] += 1
        counts["killed"] += status in NOTICED
    for group, counts in groups.items():
        if not counts["mutants"]:
            raise ValueError(f"no mutants of {group}; its files and those in pyproject.toml differ")
        counts["percent"] = round(100.0 * counts["killed"] / counts["mutants"], 1)
    return groups


def survivors(
    found: Mapping[str, str], diffs: Mapping[str, str], before: Iterable[Mapping[str, str]]
) -> list[dict[str, str]]:
    """Returns the changes that nobody noticed, with the reasons that were given to the same ones before."""
    keys = ("function", "was", "now")
    reasons = {tuple(entry[key] for key in keys): entry["why"] for entry in before}
    entries = []
    for mutant, status in found.items():
        if status in NOTICED:
            continue
        was, now = changed_lines(diffs[mutant])
        entry = {"group": group_of(mutant), "function": function_of(mutant), "was": was, "now": now}
        entry["status"] = status
        entry["why"] = reasons.get(tuple(entry[key] for key in keys), "")
        entries.append(entry)
    return sorted(
        entries, key=lambda entry: (list(GROUPS).index(entry["group"]), entry["function"], entry["now"])
    )


def page(result: Mapping[str, Any]) -> str:
    """Returns the result as Markdown."""
    lines = [
        "# Mutation testing",
        "",
        "`python3 dev.py run --locked nox -s mutation` changes the code below one place at a time and runs the tests "
        "that touch it. A change is killed when one of them fails. At least "
        f"{BAR:g} % of each group must be. mutmut {result['mutmut']}.",
        "",
        "| group | mutants | killed | % |",
        "| --- | --- | --- | --- |",
        *(f"| {g} | {c['mutants']} | {c['killed']} | {c['percent']} |" for g, c in result["groups"].items()),
        "",
        "## Survivors",
        "",
        "What no test noticed, and why it need not: an *equivalent* change makes no difference that anybody could see.",
        "",
    ]
    function = ""
    for entry in result["survivors"]:
        if entry["function"] != function:
            function = entry["function"]
            lines += [f"### `{function}` ({entry['group']})", ""]
        why = entry["why"] or "not looked at yet"
        was, now = (" ".join(entry[key].split()) for key in ("was", "now"))
        lines += [f"- {why}", "", f"      - {was}", f"      + {now}", ""]
    return "\n".join(lines).rstrip() + "\n"


def mutmut(folder: Path, *arguments: str) -> str:
    """Returns what a mutmut command prints."""
    done = subprocess.run([MUTMUT, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout


def measure(folder: Path, children: int) -> tuple[dict[str, str], dict[str, str]]:
    """Runs all mutants; returns their statuses, and the diffs of those that nobody noticed."""
    stage(folder)
    # Not captured: a run takes minutes and shows where it is.
    subprocess.run([MUTMUT, "run", "--max-children", str(children)], cwd=folder, check=True)
    found = statuses(mutmut(folder, "results", "--all", "true"))
    return found, {
        name: mutmut(folder, "show", name) for name, status in found.items() if status not in NOTICED
    }


def main() -> None:
    """Measures, writes the evidence, and fails below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="mutants tested at a time")
    children = parser.parse_args().children
    record = RESULTS / "mutation.json"
    before = json.loads(record.read_text())["survivors"] if record.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        found, diffs = measure(Path(folder), children)
    result: dict[str, Any] = {"mutmut": version("mutmut"), "groups": summary(found)}
    result["survivors"] = survivors(found, diffs, before)
    record.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    (RESULTS / "mutation.md").write_text(page(result))
    for group, counts in result["groups"].items():
        print(f"{group}: {counts['killed']} of {counts['mutants']} killed, {counts['percent']} %")
    if low := [group for group, counts in result["groups"].items() if counts["percent"] < BAR]:
        raise SystemExit(f"below {BAR:g} %: {', '.join(low)}")


if __name__ == "__main__":
    main()
