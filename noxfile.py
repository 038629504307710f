"""Sessions that check the workspace; `python3 dev.py run --locked nox` runs those that are default."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = ["unisim", "unilab-core", "unilab-managers", "unilab-rl", "unilab-tasks"]
SOURCES = [f"packages/{package}/src" for package in PACKAGES]
CLOSURES = {  # the layers that an installation holds, without and with what its tests ask for
    "unisim": {"unisim"},
    "unilab-core": {"unisim", "unilab-core"},
    "unilab-managers": {"unisim", "unilab-core", "unilab-managers"},
    "unilab-rl": {"unisim", "unilab-core", "unilab-rl"},
    "unilab-tasks": {"unisim", "unilab-core", "unilab-managers", "unilab-tasks"},
}
TEST_CLOSURES = CLOSURES | {"unilab-tasks": set(PACKAGES)}
ALSO_TESTED = {"unilab-tasks": ["scripts/tests/test_benchmarks.py"]}
"""Tests beside those of a package that need what its environment holds."""
COVERED = {"unilab-managers": ("buffers", "managers", "noise")}
"""Folders of a package that its tests must cover to `COVERAGE` percent, lines and branches each."""
COVERAGE = 95.0
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "MUJOCO_GL": "egl"}
# A file's tests stay in one process: they share what its fixtures made. Every process imports torch anew, so a few.
ON_ALL_CORES = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")

# Where uv keeps things and how it reaches the network may be set from outside. All else that uv and pip read
# from the environment could change what is resolved, and so what is written to uv.lock.
KEPT = {
    "UV_CACHE_DIR",
    "UV_CONCURRENT_DOWNLOADS",
    "UV_HTTP_TIMEOUT",
    "UV_LINK_MODE",
    "UV_OFFLINE",
    "UV_PYTHON_INSTALL_DIR",
    "UV_SYSTEM_CERTS",
}
for variable in [name for name in os.environ if name.startswith(("UV_", "PIP_")) and name not in KEPT]:
    del os.environ[variable]
for variable in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
    os.environ.pop(variable, None)
# Sessions start hundreds of processes that import torch: each would compile it anew if none could keep bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

nox.needs_version = ">=2025.10"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"  # `uv sync` is exact: what a session does not name is removed
nox.options.error_on_missing_interpreters = True


def sync(session: nox.Session, *args: str) -> None:
    """Make the session's environment exactly what the lock holds for these arguments."""
    session.run_install(
        *("uv", "sync", "--locked", "--quiet", "--no-default-groups", *args),
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
        external=True,
    )


def layers_in(session: nox.Session, python: str | Path = "python") -> set[str]:
    """The distributions of this workspace that an environment holds."""
    program = "import importlib.metadata as m; print(*{d.name for d in m.distributions()}, sep='\\n')"
    installed = session.run(str(python), "-I", "-c", program, silent=True, external=True, log=False)
    return set(PACKAGES) & set(str(installed).split())


def expect(session: nox.Session, what: str, found: set[str], wanted: set[str]) -> None:
    """Fail the session unless both sets are equal."""
    if found != wanted:
        session.error(f"{what}: found {sorted(found)}, expected {sorted(wanted)}")


@nox.session
def lint(session: nox.Session) -> None:
    """Style and formatting."""
    sync(session, "--only-group", "lint")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session
def lock(session: nox.Session) -> None:
    """uv.lock fits the pyproject files, names one public registry and nothing of this machine."""
    sync(session, "--only-group", "lint")
    session.run("uv", "lock", "--check", external=True)
    session.run("python", "scripts/check_lock.py")


@nox.session
def dag(session: nox.Session) -> None:
    """Imports point downwards and are declared, ranges fit; then the tests of these checks."""
    sync(session, "--only-group", "lint", "--only-group", "test")
    path = {"PYTHONPATH": os.pathsep.join(SOURCES)}
    session.run("lint-imports", "--no-cache", "--no-logo", env=path)
    session.run("python", "scripts/check_imports.py")
    session.run("python", "scripts/check_names.py")
    session.run("python", "scripts/check_template.py")
    session.run("python", "scripts/check_versions.py")
    session.run("pytest", "-q", "scripts/tests", *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """Static types, strict, with every extra installed."""
    sync(session, "--all-packages", "--all-extras", "--group", "types")
    session.run("mypy", *SOURCES, "examples/downstream/src", "scripts", "dev.py", *session.posargs)
    # What runs beside a peer, in sides/, is typed by what that peer's environment holds.
    session.run("mypy", *map(str, sorted(Path("benchmarks").glob("*.py"))))


@nox.session
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def tests(session: nox.Session, package: str) -> None:
    """One package's tests, in an environment that holds only the layers it declares."""
    sync(session, "--package", package, "--group", "test", "--group", "layers")
    expect(session, f"the test environment of {package}", layers_in(session), TEST_CLOSURES[package])
    if package in COVERED and not session.posargs:  # some tests alone cover little
        covered(session, package)
    else:
        paths = (f"packages/{package}/tests", *ALSO_TESTED.get(package, ()))
        session.run("pytest", *paths, *ON_ALL_CORES, *session.posargs, env=QUIET)


def covered(session: nox.Session, package: str) -> None:
    """Run a package's tests, and fail unless they cover its folders in `COVERED`."""
    source = f"packages/{package}/src/{package.replace('-', '_')}"
    report = Path(session.create_tmp()).resolve() / "coverage.json"
    report.unlink(missing_ok=True)  # of the run before
    session.run(
        *("pytest", f"packages/{package}/tests", *ON_ALL_CORES, "--cov-branch"),
        *(f"--cov={source}/{folder}" for folder in COVERED[package]),
        *("--cov-report=term-missing:skip-covered", f"--cov-report=json:{report}"),
        env=QUIET | {"COVERAGE_FILE": str(report.with_name("coverage"))},
    )
    totals = json.loads(report.read_text())["totals"]
    for what in ("statements", "branches"):
        percent = totals[f"percent_{what}_covered"]
        session.log(f"{what}: {percent:.1f} % covered")
        if percent < COVERAGE:
            session.error(
                f"the tests of {package} cover {percent:.1f} % of its {what}, expected {COVERAGE:g} %"
            )


@nox.session
def example(session: nox.Session) -> None:
    """The pendulum example, with unilab-core and a MuJoCo backend and no layer above."""
    sync(session, "--only-group", "example")
    expect(session, "the example's environment", layers_in(session), {"unisim", "unilab-core"})
    session.run("python", "examples/pendulum/pendulum.py", env=QUIET)


@nox.session
def wheels(session: nox.Session) -> None:
    """Each layer alone, from its wheel, in an environment that never saw this checkout."""
    place = Path(session.create_tmp())
    ours, constraints = build_wheels(session, place), lock_constraints(session, place)
    with constraints.open(
        "a"
    ) as file:  # the exact files: a stranger's distribution of the same name cannot be taken
        file.writelines(f"{name} @ {wheel.as_uri()}\n" for name, wheel in ours.items())
    for target in [*PACKAGES, "unilab-tasks[train]"]:
        package = target.split("[")[0]
        # The examples of all READMEs run where everything is installed; one of them is the conformance kit's.
        extra = ["unisim[testing]"] if target != package else []
        python = clean_environment(session, place / target, constraints, target, *extra)
        wanted = CLOSURES[package] if target == package else set(PACKAGES)
        expect(session, f"an environment with {target} alone", layers_in(session, python), wanted)
        session.run(str(python), "-I", "scripts/smoke.py", target, env=QUIET, external=True)


def build_wheels(session: nox.Session, place: Path) -> dict[str, Path]:
    """The wheel of every layer by its name, built below `place`."""
    dist = place / "dist"
    session.run("uv", "build", "--quiet", "--clear", "--all-packages", "--out-dir", str(dist), external=True)
    ours = {wheel.name.split("-")[0].replace("_", "-"): wheel.resolve() for wheel in dist.glob("*.whl")}
    expect(session, "the wheels that were built", set(ours), set(PACKAGES))
    return ours


def lock_constraints(session: nox.Session, place: Path) -> Path:
    """The lock's versions of everything that is not of this workspace, as constraints."""
    constraints = place / "constraints.txt"
    session.run(
        *("uv", "export", "--quiet", "--locked", "--all-packages", "--all-extras", "--all-groups"),
        *("--no-emit-workspace", "--no-hashes", "--output-file", str(constraints)),
        external=True,
        silent=True,
    )
    return constraints


def clean_environment(session: nox.Session, folder: Path, constraints: Path, *targets: str) -> Path:
    """The interpreter of a new environment that holds the targets and what they depend on."""
    session.run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(folder), external=True)
    python = folder / "bin" / "python"
    extend_environment(session, python, "--constraints", str(constraints), *targets)
    return python


@nox.session
def downstream(session: nox.Session) -> None:
    """A stranger's task repository on wheels: the example, and what `unilab new` makes; tested, listed, trained."""
    place = Path(session.create_tmp()).resolve()
    wheels, constraints = build_wheels(session, place), lock_constraints(session, place)
    repository, new = place / "my_robot", place / "other_robot"
    for folder in (repository, new):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "examples/downstream", repository, ignore=shutil.ignore_patterns(".*", "runs"))
    # As docs/downstream.md says: the layers by their path, then the repository, which finds them there.
    below = sorted(CLOSURES["unilab-managers"])
    python = clean_environment(session, place / "env", constraints, *(str(wheels[name]) for name in below))
    extend_environment(session, python, "--constraints", str(constraints), str(repository), "pytest")
    expect(session, "the environment of a task repository", layers_in(session, python), set(below))
    own_tests(session, repository, python)

    extend_environment(session, python, "--constraints", str(constraints), str(wheels["unilab-rl"]))
    extend_environment(session, python, "--constraints", str(constraints), f"{repository}[train]")
    expect(session, "it, with a learner", layers_in(session, python), {*below, "unilab-rl"})
    tasks = {"my-robot-balance", "my-robot-balance-pushed"}
    use_task(session, repository, python, "my-robot-balance-pushed", tasks)  # whose YAML is in the wheel too

    unilab(session, python, "new", "other_robot", "--path", str(new))
    own_tests(session, new, python)  # before it is installed
    extend_environment(session, python, "--no-deps", "--editable", str(new))
    tasks |= {"other-robot-balance", "other-robot-balance-pushed"}
    use_task(session, new, python, "other-robot-balance", tasks)


@nox.session
def downstream_git(session: nox.Session) -> None:
    """The same with git as the source: every layer from one commit of this checkout as it is now."""
    place = Path(session.create_tmp()).resolve()
    source, new = place / "source", place / "git_robot"
    for folder in (source, new):
        shutil.rmtree(folder, ignore_errors=True)
    commit = commit_of_copy(session, source)
    constraints = lock_constraints(session, place)
    core = f"unilab-core[cli] @ git+{source.as_uri()}#subdirectory=packages/unilab-core"
    python = clean_environment(session, place / "env", constraints, core)
    unilab(session, python, "new", "git_robot", "--path", str(new))
    group = ("--group", f"{new / 'pyproject.toml'}:dev")
    extend_environment(
        session, python, "--constraints", str(constraints), *group, "--editable", f"{new}[train]"
    )
    program = (
        "import importlib.metadata as m, json, sys\n"
        "for name in sys.argv[1:]:\n"
        "    print(json.loads(m.distribution(name).read_text('direct_url.json'))['vcs_info']['commit_id'])"
    )
    layers = sorted(set(PACKAGES) - {"unilab-tasks"})
    expect(session, "the environment", layers_in(session, python), set(layers))
    commits = session.run(str(python), "-I", "-c", program, *layers, silent=True, external=True, log=False)
    expect(session, "the commits of the layers", set(str(commits).split()), {commit})
    own_tests(session, new, python)
    use_task(session, new, python, "git-robot-balance", {"git-robot-balance", "git-robot-balance-pushed"})


def commit_of_copy(session: nox.Session, folder: Path) -> str:
    """The one commit of a new git repository that holds this checkout's files as they are now."""
    # The checkout may belong to somebody else, as in a container; nothing in it is run.
    here = ("git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}")
    listed = (*here, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in str(session.run(*listed, silent=True, external=True, log=False)).split("\0"):
        if name and (ROOT / name).is_file():  # one that was deleted is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    author = ("-c", "user.name=nox", "-c", "user.email=nox@localhost", "-c", "commit.gpgsign=false")
    git = ("git", "-C", str(folder), *author)
    session.run(*git, "init", "--quiet", external=True)
    session.run(*git, "add", "--all", external=True)
    session.run(*git, "commit", "--quiet", "--message", "as it is now", external=True)
    return str(session.run(*git, "rev-parse", "HEAD", silent=True, external=True)).strip()


def extend_environment(session: nox.Session, python: Path, *targets: str) -> None:
    """Install more into an environment."""
    session.run(
        *("uv", "pip", "install", "--quiet", "--no-config", "--python", str(python), *targets), external=True
    )


def unilab(session: nox.Session, python: Path, *args: str, silent: bool = False) -> str:
    """What the command `unilab` of an environment prints, if silent."""
    command = str(python.parent / "unilab")
    return str(session.run(command, *args, env=QUIET, external=True, silent=silent))


def own_tests(session: nox.Session, repository: Path, python: Path) -> None:
    """Run a task repository's tests as its README says."""
    with session.chdir(repository):
        session.run(str(python), "-m", "pytest", "-q", env=QUIET, external=True)


def use_task(session: nox.Session, repository: Path, python: Path, task: str, tasks: set[str]) -> None:
    """See that these tasks and no others are there; check, train and evaluate one of them a little."""
    listed = json.loads(unilab(session, python, "list", "--json", silent=True))["tasks"]
    expect(session, "the tasks", {entry["name"] for entry in listed}, tasks)
    with session.chdir(repository):
        unilab(session, python, "check", task, "--only", "rollout")  # the repository's tests make all checks
        unilab(session, python, "train", task, "--iterations", "2", "--num-envs", "16")
        unilab(session, python, "eval", "latest", "--episodes", "4")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings as errors; the start page is docs/_build/html/index.html."""
    sync(session, "--all-packages", "--all-extras", "--group", "docs")
    # From nothing: a page that is gone, or an object that moved, must not live on in what an earlier run left.
    shutil.rmtree(ROOT / "docs" / "_build", ignore_errors=True)
    shutil.rmtree(ROOT / "docs" / "api", ignore_errors=True)
    session.run(
        *("sphinx-build", "-q", "-W", "--keep-going", "--jobs", "auto"),
        *("-b", "html", "docs", "docs/_build/html"),
        env=QUIET,
    )
    session.run("python", "scripts/check_docs.py", env=QUIET)


@nox.session(default=False)
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def floors(session: nox.Session, package: str) -> None:
    """One package's tests on the oldest versions that it says it supports."""

    def groups(folder: str) -> dict[str, list[str]]:
        return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["dependency-groups"]

    wanted = {item.split("[")[0]: item for item in groups(f"packages/{package}")["layers"]}
    layers = [f"packages/{wanted.pop(name, name)}" for name in sorted(TEST_CLOSURES[package])]
    session.run_install(
        *("uv", "pip", "install", "--quiet", "--resolution", "lowest-direct"),
        *(part for layer in layers for part in ("--editable", layer)),
        *wanted.values(),
        *groups(".")["test"],
        external=True,
    )
    session.run("uv", "pip", "list", external=True)
    session.run("pytest", f"packages/{package}/tests", *session.posargs, env=QUIET)


@nox.session(default=False)
def learning(session: nox.Session) -> None:
    """The shipped presets on three seeds against their bars; the evidence goes to docs/results/."""
    sync(session, "--package", "unilab-tasks", "--extra", "train")
    session.run("python", "scripts/learning.py", *session.posargs, env={"OMP_WAIT_POLICY": "PASSIVE"})


@nox.session(default=False)
def learning_off_policy(session: nox.Session) -> None:
    """Every off-policy preset on three seeds against its bar; the curves go to docs/results/."""
    sync(session, "--package", "unilab-tasks", "--extra", "train")
    session.run("python", "scripts/learning_off_policy.py", *session.posargs, env=QUIET)


@nox.session(default=False)
def evidence(session: nox.Session) -> None:
    """What works where: the suite and the tasks on every backend, into the packages and docs/support.md."""
    sync(session, "--all-packages", "--all-extras", "--group", "test")
    session.run("python", "scripts/support_evidence.py", *(session.posargs or ["record"]), env=QUIET)


@nox.session(default=False)
def gpu_check(session: nox.Session) -> None:
    """What is checked on a GPU machine, as a dry run on the CPU: every line runs, nothing is shown about a GPU."""
    sync(session, "--all-packages", "--all-extras", "--group", "test")
    out = str(Path(session.create_tmp()).resolve() / "gpu-check.json")
    session.run("pytest", "-q", "scripts/tests/test_gpu_streams.py", env=QUIET)
    session.run("python", "scripts/gpu_check.py", "--dry-run", "--out", out, *session.posargs, env=QUIET)


@nox.session(default=False)
def terms(session: nox.Session) -> None:
    """docs/terms.md, made again: every term of the library, what it reads, writes and gives."""
    sync(session, "--all-packages", "--all-extras")
    session.run("python", "scripts/term_table.py", env=QUIET)


@nox.session(default=False)
def mutation(session: nox.Session) -> None:
    """Small changes of code that must not break, each noticed by a test; the evidence goes to docs/results/."""
    groups = ("--group", "test", "--group", "layers", "--group", "mutation")
    sync(session, "--package", "unilab-managers", *groups)
    session.run("python", "scripts/mutation.py", *session.posargs, env=QUIET)
