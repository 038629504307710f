"""`unilab diff` says what differs between two runs, and nothing else."""

import json

import pytest
from rl_support import COUNTING

from unilab_core.cli import main
from unilab_rl import RunFolder
from unilab_rl.cli.diff import _cells
from unilab_rl.cli.run_comparison import Change
from unilab_rl.run_config import MISSING


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    COUNTING.made.clear()


@pytest.fixture
def two(tmp_path, capsys):
    """Two runs that differ in gain, rate, seed and budget, with curves of known numbers."""
    made = []
    for name, settings in (
        ("a", ()),
        ("b", ("--seed", "1", "--iterations", "4", "--set", "gain=2.0", "--set", "learner.rate=0.5")),
    ):
        assert main(["train", "scripted", "--backend", "scripted", "--runs", name, *settings]) == 0
        made.append(RunFolder(next((tmp_path / name / "scripted").iterdir()).relative_to(tmp_path)))
    capsys.readouterr()
    write_curve(made[0], {"Episode/return": [1.0, 7.5, 7.5, None]})
    write_curve(made[1], {"Episode/return": [2.0, 1.0], "Eval/return": [None, 3.25]})
    return made


def write_curve(folder, curves):
    rows = zip(*curves.values(), strict=True)
    lines = [
        {"iteration": number, "env_steps": 8000 * number, "metrics": dict(zip(curves, values, strict=True))}
        for number, values in enumerate(rows, 1)
    ]
    folder.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def diff(capsys, *args):
    code = main(["diff", *map(str, args)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys, *args):
    code, out, err = diff(capsys, *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_config_is_compared_by_dotted_path_with_the_seed_and_the_budget(two, capsys):
    assert as_json(capsys, two[0].path, two[1].path)["config"] == [
        {"name": "seed", "first": 0, "second": 1},
        {"name": "budget.iterations", "first": 3, "second": 4},
        {"name": "env.gain", "first": 1.0, "second": 2.0},
        {"name": "learner.rate", "first": 1.0, "second": 0.5},
    ]


def test_the_final_and_the_best_value_of_each_curve_come_with_the_steps_until_then(two, capsys):
    assert as_json(capsys, two[0].path, two[1].path)["curves"] == {
        "Episode/return": [
            {
                "final": {"value": 7.5, "iteration": 3, "env_steps": 24_000},
                "best": {"value": 7.5, "iteration": 2, "env_steps": 16_000},
            },
            {
                "final": {"value": 1.0, "iteration": 2, "env_steps": 16_000},
                "best": {"value": 2.0, "iteration": 1, "env_steps": 8_000},
            },
        ],
        "Eval/return": [
            None,
            {
                "final": {"value": 3.25, "iteration": 2, "env_steps": 16_000},
                "best": {"value": 3.25, "iteration": 2, "env_steps": 16_000},
            },
        ],
    }


def test_the_runs_themselves_are_named_with_how_far_they_came(two, capsys):
    first, second = as_json(capsys, two[0].path, two[1].path)["runs"]
    assert first == {
        "path": str(two[0].path),
        "task": "scripted",
        "algorithm": "counting",
        "backend": "scripted",
        "device": "cpu",
        "num_envs": 4,
        "seed": 0,
        "iterations": 4,
        "env_steps": 32_000,
        "resumes": 0,
    }
    assert (second["seed"], second["iterations"]) == (1, 2)


def test_versions_and_threads_are_those_of_every_process_that_trained_the_run(two, capsys):
    manifest = two[1].manifest()
    own = {part: dict(manifest[part]) for part in ("versions", "threads")}
    torch, threads = own["versions"]["torch"], own["threads"]["torch"]
    del own["versions"]["mujoco"]
    later = {"iteration": 1, "versions": own["versions"] | {"torch": "9.0"}, "threads": own["threads"]}
    two[1].write_manifest(
        manifest | own | {"resumes": [later, later], "threads": {**own["threads"], "torch": 77}}
    )
    found = as_json(capsys, two[0].path, two[1].path)
    mujoco = manifest["versions"]["mujoco"]
    assert found["versions"] == [
        {"name": "torch", "first": [torch], "second": [torch, "9.0"]},
        {"name": "mujoco", "first": [mujoco]},
    ]
    assert found["threads"] == [{"name": "torch", "first": [threads], "second": [77, threads]}]
    assert found["runs"][1]["resumes"] == 2
    _, out, _ = diff(capsys, two[0].path, two[1].path)
    cells = [
        [cell.strip() for cell in line.split("│")[1:4]] for line in out.splitlines() if line.startswith("│")
    ]
    assert ["version of torch", str(torch), f"{torch}, then 9.0"] in cells
    assert ["version of mujoco", mujoco or "none", "-"] in cells
    assert ["threads: torch", str(threads), f"77, then {threads}"] in cells
    assert "resumed 2 times" in out


def test_a_run_is_equal_to_itself(two, capsys):
    found = as_json(capsys, two[0].path, two[0].path)
    assert (found["config"], found["versions"], found["threads"]) == ([], [], [])
    code, out, err = diff(capsys, two[0].path, two[0].path)
    assert (code, err) == (0, "")
    assert "equal:  config, versions, threads\n" in out


def test_the_table_fits_on_a_screen_and_has_a_line_for_each_difference(two, capsys):
    code, out, err = diff(capsys, two[0].path, two[1].path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        f"first:  {two[0].path}: scripted with counting, backend scripted, device cpu, 4 environments, seed 0, "
        "4 iterations, 32,000 env steps"
    )
    assert lines[1].startswith(f"second: {two[1].path}: ")
    assert lines[2] == "equal:  versions, threads"
    assert [line.split("│")[1:4] for line in lines if line.startswith("│")] == [
        [" seed                  ", " 0                   ", " 1                    "],
        [" budget.iterations     ", " 3                   ", " 4                    "],
        [" env.gain              ", " 1.0                 ", " 2.0                  "],
        [" learner.rate          ", " 1.0                 ", " 0.5                  "],
        [" Episode/return, final ", " 7.5 at 24,000 steps ", " 1 at 16,000 steps    "],
        [" Episode/return, best  ", " 7.5 at 16,000 steps ", " 2 at 8,000 steps     "],
        [" Eval/return, final    ", " -                   ", " 3.25 at 16,000 steps "],
        [" Eval/return, best     ", " -                   ", " 3.25 at 16,000 steps "],
    ]


def test_a_value_that_one_run_lacks_has_no_key_and_a_long_one_is_cut_in_the_table_only(two, capsys):
    text = two[1].config_path.read_text()
    assert "gain_on: {}" in text
    two[1].config_path.write_text(text.replace("gain_on: {}", f"gain_on: {{{'x' * 80}: 1.0}}"))
    name = f"env.gain_on.{'x' * 80}"
    found = {change["name"]: change for change in as_json(capsys, two[0].path, two[1].path)["config"]}
    assert found[name] == {"name": name, "second": 1.0}
    assert list(_cells(Change(name, MISSING, "y" * 61), grouped=False)) == ["-", "y" * 59 + "…"]
    assert list(_cells(Change(name, None, "y" * 60), grouped=False)) == ["None", "y" * 60]


def test_a_checkpoint_stands_for_its_run_and_latest_for_the_newest(two, capsys):
    checkpoint = two[0].checkpoints / "model_3.pt"
    found = as_json(capsys, checkpoint, "latest", "--runs", "b")
    assert [run["path"] for run in found["runs"]] == [
        str(two[0].path),
        "b/" + str(two[1].path.relative_to("b")),
    ]


@pytest.mark.parametrize("newline", ["", "\n"])
def test_a_line_cut_off_by_a_crash_is_left_out_and_another_one_is_an_error(two, capsys, newline):
    with two[0].metrics_path.open("a") as file:
        file.write('{"iteration": 5, "env' + newline)
    code, out, err = diff(capsys, two[0].path, two[1].path)
    if newline:
        assert (code, out) == (2, "")
        assert "metrics.jsonl: line 5 is no JSON" in err
    else:
        assert (code, err) == (0, "")
        assert "4 iterations, 32,000 env steps" in out


def spoil(folder, what):
    manifest = folder.manifest()
    if what == "metrics":
        folder.metrics_path.write_text("[1]\n")
    elif what == "no metrics":
        folder.metrics_path.unlink()
    elif what == "config":
        folder.config_path.write_text(folder.config_path.read_text().replace("gain:", "gian:"))
    elif what == "schema":
        folder.write_manifest(manifest | {"schema_version": 2})
    else:
        folder.write_manifest(manifest | {what: 7})


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("metrics", "metrics.jsonl: line 1 is '[1]', expected an object with iteration, env_steps, metrics"),
        ("no metrics", "metrics.jsonl: cannot be read"),
        ("config", "unknown key 'gian'; did you mean 'gain'"),
        ("schema", "manifest.json: has schema_version 2, this version reads 1; use the version of unilab-rl"),
        ("versions", "manifest.json: the entry 'versions' is 7, expected an object"),
        ("resumes", "manifest.json: the entry 'resumes' is 7, expected a list of objects"),
    ],
)
def test_a_damaged_file_is_one_message_that_names_it_and_exit_2(two, capsys, what, message):
    spoil(two[1], what)
    code, out, err = diff(capsys, two[0].path, two[1].path)
    assert (code, out) == (2, "")
    assert str(two[1].path) in err
    assert message in err
    assert "Traceback" not in err


def test_a_run_that_is_not_there_is_bad_input(two, capsys):
    code, out, err = diff(capsys, two[0].path, "runs/nothing")
    assert (code, out) == (2, "")
    assert "no run 'runs/nothing'" in err
    assert diff(capsys, two[0].path)[0] == 2
