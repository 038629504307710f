"""`unilab new`: a complete repository or nothing, under a name that works, without torch."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import pytest

from unilab_core import TaskSpec
from unilab_core.cli import dispatcher, main, new_names, new_source, new_tree
from unilab_core.cli.new import command
from unilab_core.cli.new_names import problem_of, proposal
from unilab_core.cli.new_tree import repository_files
from unisim import yaml12

FILES = {
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "src/two_arms/__init__.py",
    "src/two_arms/env_cfg.py",
    "src/two_arms/learners.py",
    "src/two_arms/mdp.py",
    "src/two_arms/pushed.yaml",
    "src/two_arms/register.py",
    "src/two_arms/robot.py",
    "tests/test_robot.py",
    "tests/test_tasks.py",
    "tests/test_terms.py",
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    """An empty working directory, no task, and an installation that came from nowhere in particular."""
    points = [SimpleNamespace(name="new", load=lambda: command)]
    monkeypatch.setattr(
        dispatcher, "entry_points", lambda group: points if group == "unilab.commands" else []
    )
    monkeypatch.setattr(new_names, "list_tasks", tuple)
    monkeypatch.setattr(new_source, "distribution", lambda name: Installed(None))
    monkeypatch.chdir(tmp_path)


class Installed:
    """A distribution with the record of where it came from, or without one."""

    def __init__(self, record):
        self.record = record

    def read_text(self, filename):
        assert filename == "direct_url.json"
        return None if self.record is None else json.dumps(self.record)


def made(folder):
    """The files below a folder."""
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


def project(folder="two_arms"):
    return tomllib.loads((Path(folder) / "pyproject.toml").read_text())


# ---------------------------------------------------------------- what it makes


def test_it_makes_exactly_these_files_and_says_what_to_do_next(capsys):
    assert main(["new", "two_arms"]) == 0
    assert os.listdir() == ["two_arms"]
    assert made("two_arms") == FILES
    assert capsys.readouterr().out == (
        "two_arms: 13 files of the task repository 'two_arms'. README.md says what is where; next:\n"
        "\n"
        "  cd two_arms\n"
        "  python -m pytest\n"
        "  pip install --editable '.[train]'\n"
        "  unilab train two-arms-balance\n"
    )


def test_the_name_is_everywhere_that_of_the_example_was():
    texts = repository_files("two_arms")
    assert set(texts) == FILES
    left = [path for path, text in texts.items() if "my_robot" in text + path or "my-robot" in text + path]
    assert left == []
    data = tomllib.loads(texts["pyproject.toml"])
    assert data["project"]["name"] == "two-arms"
    assert data["project"]["entry-points"]["unilab.tasks"] == {"two-arms": "two_arms:register"}


def test_every_module_compiles_and_every_other_file_parses():
    texts = repository_files("two_arms")
    for path, text in texts.items():
        if path.endswith(".py"):
            assert ast.get_docstring(ast.parse(text, path)), path
    assert yaml12.load(texts["src/two_arms/pushed.yaml"])["episode_length_s"] == 20
    assert "uv_build" in tomllib.loads(texts["pyproject.toml"])["build-system"]["build-backend"]


def test_it_needs_managers_always_and_a_learner_only_to_train():
    data = tomllib.loads(repository_files("two_arms")["pyproject.toml"])["project"]

    def names(requirements):
        return {requirement.split(">")[0].split("[")[0] for requirement in requirements}

    needed = names(data["dependencies"])
    assert needed == {"mujoco", "torch", "unilab-core", "unilab-managers", "unisim"}
    assert names(data["optional-dependencies"]["train"]) == {"unilab-managers", "unilab-rl"}


def test_the_template_that_is_installed_holds_nothing_else():
    shipped = [str(file) for file in distribution("unilab-core").files or () if "new_template" in str(file)]
    folder = Path(new_source.__file__).parent / "new_template"
    assert len(made(folder)) == len(FILES)
    assert all(name.endswith(".template") for name in [*made(folder), *shipped])


def test_path_names_another_folder(capsys):
    Path("work").mkdir()
    assert main(["new", "two_arms", "--path", "work/my arms"]) == 0
    assert made("work/my arms") == FILES
    assert "  cd 'work/my arms'\n" in capsys.readouterr().out


# ---------------------------------------------------------------- nothing is overwritten, nothing half-written


def contents(path):
    """What is there, followed down."""
    if path.is_symlink():
        return os.readlink(path)
    return {item.name: contents(item) for item in path.iterdir()} if path.is_dir() else path.read_text()


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
def test_what_exists_is_refused_and_left_as_it_is(kind, capsys):
    there = Path("two_arms")
    if kind == "file":
        there.write_text("mine")
    elif kind == "dangling link":
        there.symlink_to("nowhere")
    else:
        there.mkdir()
        if kind == "folder":
            (there / "README.md").write_text("mine")
    before = contents(Path())
    assert main(["new", "two_arms"]) == 2
    assert capsys.readouterr().err == (
        "Error: two_arms was not made: it exists already; name another folder with --path\n"
    )
    assert contents(Path()) == before


def test_a_missing_parent_is_named_and_not_made(capsys):
    assert main(["new", "two_arms", "--path", "no/arms"]) == 2
    assert "no/arms was not made: there is no folder 'no' to make it in" in capsys.readouterr().err
    assert os.listdir() == []


@pytest.mark.parametrize("position", range(len(FILES)))
def test_a_full_disk_leaves_nothing_behind(position, monkeypatch, capsys):
    write, written = Path.write_text, []

    def write_some(path, *args, **kwargs):
        if len(written) == position:
            write(path, "half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", write_some)
    assert main(["new", "two_arms"]) == 2
    assert capsys.readouterr().err == "Error: two_arms was not made: No space left on device\n"
    assert len(written) == position
    assert os.listdir() == []


def test_nobody_sees_the_folder_before_it_is_complete(monkeypatch):
    rename, seen = Path.rename, []

    def look_first(path, target):
        seen.append((os.path.lexists("two_arms"), made(path)))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", look_first)
    assert main(["new", "two_arms"]) == 0
    assert seen == [(False, FILES)]


def test_a_folder_that_appears_meanwhile_is_not_replaced(monkeypatch, capsys):
    rename = Path.rename

    def too_late(path, target):
        target.mkdir()
        (target / "README.md").write_text("mine")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", too_late)
    assert main(["new", "two_arms"]) == 2
    assert "two_arms was not made: Directory not empty" in capsys.readouterr().err
    assert os.listdir() == ["two_arms"]
    assert made("two_arms") == {"README.md"}


def test_an_interrupt_leaves_nothing_behind(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupted)
    assert main(["new", "two_arms"]) == 1
    assert os.listdir() == []


def test_an_interrupt_while_the_first_folder_is_made_leaves_nothing_behind(monkeypatch):
    mkdir = Path.mkdir

    def interrupted(path, *args, **kwargs):
        mkdir(path, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    assert main(["new", "two_arms"]) == 1
    assert os.listdir() == []


def test_what_cannot_be_removed_is_named_and_does_not_hide_what_went_wrong(monkeypatch, capsys, caplog):
    def fail(path, *args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def keep(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "write_text", fail)
    monkeypatch.setattr(new_tree.shutil, "rmtree", keep)
    assert main(["new", "two_arms"]) == 2
    assert capsys.readouterr().err == "Error: two_arms was not made: No space left on device\n"
    (left,) = os.listdir()
    reason = f"[Errno 13] Permission denied: '{left}'"
    assert caplog.messages == [f"{left} was begun and cannot be removed: {reason}"]


# ---------------------------------------------------------------- names

SPELLING = "expected lower-case letters, digits and single underscores, a letter first"


@pytest.mark.parametrize(
    ("name", "problem", "instead"),
    [
        ("my-robot", SPELLING, "my_robot"),
        ("MyRobot", SPELLING, "my_robot"),
        ("my robot!", SPELLING, "my_robot"),
        ("3d_printer", SPELLING, "robot_3d_printer"),
        ("__arm__", SPELLING, "arm"),
        ("two__arms", SPELLING, "two_arms"),
        ("größe", SPELLING, "groe"),
        ("../arm", SPELLING, "arm"),
        ("机器人", SPELLING, "my_robot"),
        ("", SPELLING, "my_robot"),
        ("class", "it is a word of Python", "class_tasks"),
        ("match", "it is a word of Python", "match_tasks"),
        ("json", "Python has a module of this name", "json_tasks"),
        ("tests", "Python has a module of this name", "tests_tasks"),
        ("conftest", "pytest has files of this name", "conftest_tasks"),
        ("torch", "a module of this name is installed already", "torch_tasks"),
        ("unilab_rl", "a module of this name is installed already", "unilab_rl_tasks"),
    ],
)
def test_a_name_that_does_not_work_is_answered_with_one_that_does(name, problem, instead, capsys):
    assert main(["new", "--", name]) == 2
    expected = f"Error: {name!r} cannot be the name of the package: {problem}; try {instead!r}\n"
    assert capsys.readouterr().err == expected
    assert os.listdir() == []
    assert problem_of(instead) is None


@pytest.mark.parametrize("task", ["cart-pole-balance", "cart-pole-balance-pushed"])
def test_the_name_of_a_task_that_is_there_is_not_taken_again(task, monkeypatch, capsys):
    monkeypatch.setattr(new_names, "list_tasks", lambda: (TaskSpec(task, "m:f"),))
    assert main(["new", "cart_pole"]) == 2
    assert f"there is a task {task!r} already; try 'cart_pole_tasks'" in capsys.readouterr().err
    assert problem_of("cart") is None


def test_the_names_of_tasks_that_are_looked_for_are_those_that_will_be_registered():
    registered = re.findall(r'name="([\w-]+)"', repository_files("cart_pole")["src/cart_pole/register.py"])
    assert registered == [f"cart-pole-{task}" for task in new_names._TASKS]


def test_a_proposal_is_itself_free():
    assert proposal("Two-Arms") == "two_arms"
    assert proposal("json") == "json_tasks"


@pytest.mark.parametrize("name", sorted(Path(path).stem for path in FILES if path.startswith("tests/")))
def test_a_package_may_have_the_name_of_one_of_its_test_files(name):
    assert main(["new", name]) == 0
    # Of the test's own, because what the template tests needs layers above this one.
    Path(name, "src", name, "__init__.py").write_text("")
    Path(name, "src", name, "robot.py").write_text("LEGS = 4\n")
    for path in Path(name, "tests").iterdir():
        path.write_text(f"from {name}.robot import LEGS\n\ndef test_legs():\n    assert LEGS == 4\n")
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=name,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.stdout.splitlines()[-1].startswith("3 passed"), finished.stdout


# ---------------------------------------------------------------- where the layers come from


def git(url, **record):
    return Installed({"url": url, "vcs_info": {"vcs": "git", "commit_id": COMMIT}, **record})


def test_an_installation_from_git_is_the_source_of_the_new_repository(monkeypatch, capsys):
    installed = git("https://git.test/lab/my_robot.git", subdirectory="packages/unilab-core")
    monkeypatch.setattr(new_source, "distribution", lambda name: installed)
    assert main(["new", "two_arms"]) == 0
    assert project()["tool"]["uv"]["sources"] == {
        name: {
            "git": "https://git.test/lab/my_robot.git",  # not renamed with the package
            "rev": COMMIT,
            "subdirectory": f"packages/{name}",
        }
        for name in ("unilab-core", "unilab-managers", "unilab-rl", "unisim")
    }
    assert project()["project"]["name"] == "two-arms"
    assert capsys.readouterr().out.endswith(
        "  cd two_arms\n  uv run pytest\n  uv run --extra train unilab train two-arms-balance\n"
    )


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://me:secret@git.test/lab.git", "https://git.test/lab.git"),
        ("https://secret@git.test:8443/lab.git", "https://git.test:8443/lab.git"),
        ("ssh://git@git.test/lab.git", "ssh://git@git.test/lab.git"),
        ("ssh://me:secret@git.test/lab.git", "ssh://me@git.test/lab.git"),
        ("file:///srv/lab.git", "file:///srv/lab.git"),
    ],
)
def test_no_password_is_written(url, written, monkeypatch):
    monkeypatch.setattr(new_source, "distribution", lambda name: git(url))
    sources = tomllib.loads(new_source.git_sources())["tool"]["uv"]["sources"]
    assert {source["git"] for source in sources.values()} == {written}


@pytest.mark.parametrize(
    "record",
    [
        None,
        {"url": "file:///srv/unilab_core-0.1.0-py3-none-any.whl", "archive_info": {}},
        {"url": "file:///home/me/lab/packages/unilab-core", "dir_info": {"editable": True}},
    ],
)
def test_a_place_of_this_machine_is_no_source(record, monkeypatch):
    monkeypatch.setattr(new_source, "distribution", lambda name: Installed(record))
    assert new_source.git_sources() == ""


# ---------------------------------------------------------------- in a process of its own


def test_it_imports_neither_torch_nor_an_engine(program):
    finished = program("""
import sys
from unilab_core.cli import main
code = main(["new", "two_arms"])
heavy = {"torch", "mujoco", "numpy", "pydantic", "rich"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else code)
""")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert made("two_arms") == FILES
