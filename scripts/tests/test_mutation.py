"""What is counted as noticed, how survivors are told apart, and that the settings name files that exist."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "mutation.py"
RING = "unilab_managers.buffers.ring.xǁFrameRingǁpush__mutmut_2"
TIMING = "unilab_core.timing.x_seconds_to_steps__mutmut_7"
SELECTOR = "unilab_core.reset_selectors.x_resolve_reset_mask__mutmut_1"
TRANSACTION = "unilab_core.reset_transaction.x__explain__mutmut_3"
FOUND = {RING: "killed", TIMING: "survived", SELECTOR: "timeout", TRANSACTION: "no tests"}
DIFF = """--- src/a.py
+++ src/a.py
@@ -1,3 +1,3 @@
 quotient = seconds / step_dt
-    if a <= b:
+    if a < b:
"""


@pytest.fixture(scope="module")
def mutation():
    spec = importlib.util.spec_from_file_location("mutation", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]


def test_a_listing_gives_the_status_of_every_mutant(mutation):
    listing = "\n".join(f"    {name}: {status}" for name, status in FOUND.items()) + "\n\n"
    assert mutation.statuses(listing) == FOUND


def test_only_what_a_test_noticed_counts(mutation):
    more = {RING.replace("_2", "_3"): "survived", RING.replace("_2", "_4"): "suspicious"}
    assert mutation.summary(FOUND | more) == {
        "buffers": {"mutants": 3, "killed": 1, "percent": 33.3},
        "timers": {"mutants": 1, "killed": 0, "percent": 0.0},
        "selectors": {"mutants": 1, "killed": 1, "percent": 100.0},
        "transaction": {"mutants": 1, "killed": 0, "percent": 0.0},
    }


def test_a_group_without_mutants_and_a_mutant_without_a_group_are_errors(mutation):
    with pytest.raises(ValueError, match="no mutants of buffers"):
        mutation.summary({TIMING: "killed"})
    with pytest.raises(ValueError, match="unilab_core.env.x_f__mutmut_1 belongs to no group"):
        mutation.summary({"unilab_core.env.x_f__mutmut_1": "killed"})


def test_functions_and_changes_are_told_as_they_stand_in_the_source(mutation):
    assert mutation.function_of(RING) == "unilab_managers.buffers.ring.FrameRing.push"
    assert mutation.function_of(TIMING) == "unilab_core.timing.seconds_to_steps"
    assert mutation.function_of(TRANSACTION) == "unilab_core.reset_transaction._explain"
    assert mutation.changed_lines(DIFF) == ("if a <= b:", "if a < b:")


def test_a_reason_stays_with_its_change_whatever_its_number(mutation):
    diffs = {TIMING: DIFF, TRANSACTION: DIFF.replace("a < b", "a > b")}
    first = mutation.survivors(FOUND, diffs, [])
    assert [(entry["group"], entry["now"], entry["why"]) for entry in first] == [
        ("timers", "if a < b:", ""),
        ("transaction", "if a > b:", ""),
    ]
    first[0]["why"] = "equivalent: no quotient lies there"
    moved = {name.replace("_7", "_9"): status for name, status in FOUND.items()}
    later = mutation.survivors(moved, {TIMING.replace("_7", "_9"): DIFF, TRANSACTION: DIFF}, first)
    assert [entry["why"] for entry in later] == ["equivalent: no quotient lies there", ""]


def test_the_page_shows_every_survivor_and_says_which_nobody_looked_at(mutation):
    result = {"mutmut": "3.8.1", "groups": mutation.summary(FOUND)}
    result["survivors"] = mutation.survivors(FOUND, {TIMING: DIFF, TRANSACTION: DIFF}, [])
    result["survivors"][0]["why"] = "equivalent"
    page = mutation.page(result)
    assert "| selectors | 1 | 1 | 100.0 |" in page
    assert page.count("      - if a <= b:\n      + if a < b:") == 2
    assert page.index("- equivalent\n") < page.index("- not looked at yet\n")


def test_the_settings_name_the_files_of_the_groups_and_tests_that_exist(mutation, settings):
    files = [
        path.relative_to(ROOT / "packages" / package).as_posix()
        for package in mutation.PACKAGES
        for pattern in settings["only_mutate"]
        for path in (ROOT / "packages" / package).glob(pattern)
        if path.name != "__init__.py"
    ]
    assert len(files) >= len(settings["only_mutate"])
    modules = [file.removeprefix("src/").removesuffix(".py").replace("/", ".") for file in files]
    assert {mutation.group_of(f"{module}.x_f__mutmut_1") for module in modules} == set(mutation.GROUPS)
    for test in settings["pytest_add_cli_args_test_selection"]:
        assert (ROOT / test).is_file(), test


def test_the_copy_holds_what_the_settings_name(mutation, settings, tmp_path):
    mutation.stage(tmp_path)
    for pattern in settings["only_mutate"]:
        assert list(tmp_path.glob(pattern)), pattern
    for test in settings["pytest_add_cli_args_test_selection"]:
        assert (tmp_path / test).is_file(), test
    assert (tmp_path / "packages/unilab-managers/tests/support").is_dir()
    assert not list(tmp_path.rglob("__pycache__"))
