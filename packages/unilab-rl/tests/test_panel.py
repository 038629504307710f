"""The live panel: what it shows, and that it leaves the terminal as it was."""

import contextlib
import io
import os
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rl_support import COUNTING, Iteration, run_config

from unilab_core.cli import main
from unilab_rl import BudgetCfg, RunFolder, TrainRequest, train
from unilab_rl.cli import train as train_command
from unilab_rl.cli.panel import HEARD, HINT, PanelProgress, panel
from unilab_rl.cli.progress import PlainProgress
from unilab_rl.cli.run_view import RunView
from unilab_rl.runtime.runner import Progress

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
METRICS = {
    "Loss/value": 0.1,
    "Episode/return": 341.23,
    "Episode/length": 412.5,
    "Episode/count": 120.0,
    "Episode_Reward/track": 1.2,
    "Episode_Reward/upright": -0.25,
    "Episode_Reward/gait": 0.9,
    "Episode_Termination/time_out": 0.9,
    "Episode_Termination/tilt": 0.1,
    "Curriculum/push": 0.5,
    "Eval/return": 12.3,
    "Eval/falls": 2.0,
    "Eval/Metrics/twist/error_vx": 0.13,
}


class Terminal(io.StringIO):
    """Keeps what is written, write by write."""

    def __init__(self):
        super().__init__()
        self.writes = []

    def write(self, text):
        self.writes.append(text)
        return super().write(text)


def terminal_console(width=80, height=30):
    return Console(
        file=Terminal(),
        force_terminal=True,
        color_system=None,
        width=width,
        height=height,
        legacy_windows=False,
    )


def shown(view, **settings):
    console = terminal_console(**settings)
    console.print(panel(view, title="task, ppo, 300 iterations", folder=Path("runs/x")))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def progress(iteration=156, *, elapsed_s=72.0, used=0.52, metrics=METRICS):
    return Progress(iteration, 6144 * iteration, elapsed_s, used, Iteration(6144, 0.25, 0.5, dict(metrics)))


def viewed(metrics=METRICS):
    view = RunView()
    view.note(progress(metrics=metrics))
    return view


def test_the_panel_shows_everything_that_a_run_reports():
    view = viewed()
    view.checkpoint = Path("runs/x/checkpoints/model_150.pt")
    assert shown(view) == [
        "╭─ task, ppo, 300 iterations ──────────────────────────────────────────────────╮",
        "│ ━━━━━━━━━━━━━━━━━━━━━━━━                         52%  elapsed 1:12  ETA 1:06 │",
        "│ iteration             156  collect steps/s   24,576  return            341.2 │",
        "│ env steps         958,464  learn steps/s     12,288  episode length    412.5 │",
        "│                                                                              │",
        "│ reward terms              episodes ended by        evaluation at 156         │",
        "│ track               1.2   time_out           90%   return               12.3 │",
        "│ gait                0.9   tilt               10%   falls                   2 │",
        "│ upright           -0.25   curriculum               twist/error_vx       0.13 │",
        "│                           push               0.5                             │",
        "│                                                                              │",
        "│ saved checkpoints/model_150.pt                                               │",
        "╰──────────────────────────────────────────────────────────────────────────────╯",
    ]


def test_the_panel_is_there_before_the_first_iteration():
    assert shown(RunView()) == [
        "╭─ task, ppo, 300 iterations ──────────────────────────────────────────────────╮",
        "│                                                      0%  elapsed 0:00  ETA ? │",
        "│ iteration              -  collect steps/s        -  return                 - │",
        "│ env steps              -  learn steps/s          -  episode length         - │",
        "╰──────────────────────────────────────────────────────────────────────────────╯",
    ]


def test_the_largest_reward_terms_come_first_and_the_rest_is_counted():
    terms = {f"Episode_Reward/term{number}": (-1) ** number * float(number) for number in range(1, 12)}
    lines = [line[2:-2].split() for line in shown(viewed(terms))]
    start = lines.index(["reward", "terms"])
    assert lines[start + 1 : start + 9] == [
        *([f"term{number}", f"{(-1) ** number * number}"] for number in range(11, 4, -1)),
        ["and", "4", "more"],
    ]


def test_the_panel_fits_a_terminal_of_24_lines_whatever_a_run_reports():
    metrics = {
        f"{kind}/entry{number}": float(number)
        for kind in ("Episode_Reward", "Episode_Termination", "Curriculum", "Eval/Metrics")
        for number in range(30)
    }
    view = viewed(METRICS | metrics)
    view.checkpoint = Path("elsewhere/model_1.pt")
    assert len(shown(view)) <= 22
    assert len(shown(view, width=40)) <= 22


def test_names_with_brackets_are_shown_as_they_are():
    assert any("[bold]x" in line for line in shown(viewed({"Episode_Reward/[bold]x": 1.0})))


def test_what_an_iteration_does_not_report_stays_as_it_was():
    view = viewed()
    view.note(progress(157, metrics={"Loss/value": 0.2}))
    lines = "\n".join(shown(view))
    assert "157" in lines
    assert "track               1.2" in lines
    assert "evaluation at 156" in lines
    assert "341.2" in lines


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def started(**settings):
    console = terminal_console()
    watcher = PanelProgress(console, clock=settings.pop("clock", Clock()), **settings)
    watcher.on_start(RunFolder(Path("runs/x")), run_config(), BudgetCfg(iterations=300), None)
    return watcher, console.file


def test_the_start_is_said_above_the_panel():
    watcher, terminal = started()
    watcher.on_end()
    text = terminal.getvalue()
    assert text.startswith(
        "training scripted with counting: backend scripted, device cpu, 4 environments, seed 7, 300 iterations\n"
        "run folder: runs/x\n"
    )
    assert "scripted, counting, 300 iterations" in text
    assert HINT in text


def test_each_redraw_is_one_write_and_at_most_one_in_the_interval():
    clock = Clock()
    watcher, terminal = started(clock=clock, interval_s=0.25)
    terminal.writes.clear()
    for iteration in range(1, 9):
        clock.now = 0.1 * iteration
        watcher.on_iteration(progress(iteration))
    # At 0.1, 0.4 and 0.7: the first, and then each that is 0.25 s later.
    assert len(terminal.writes) == 3
    assert [f" {iteration}  collect" in terminal.writes[n] for n, iteration in enumerate((1, 4, 7))] == [
        True
    ] * 3
    watcher.on_end()


def test_a_redraw_takes_the_place_of_the_last_one():
    watcher, terminal = started()
    height = len(terminal.getvalue().splitlines()) - 2  # without the two lines above it
    terminal.writes.clear()
    watcher.on_iteration(progress())
    assert terminal.writes[0].count("\x1b[1A") == height - 1
    watcher.on_end()


def test_the_last_panel_stands_with_everything_that_came_after_the_last_redraw():
    clock = Clock()
    watcher, terminal = started(clock=clock)
    watcher.on_iteration(progress(1))
    watcher.on_iteration(progress(2))
    watcher.on_checkpoint(Path("runs/x/checkpoints/model_2.pt"))
    terminal.writes.clear()
    watcher.on_end()
    text = "".join(terminal.writes)
    assert " 2  collect" in text
    assert "saved checkpoints/model_2.pt" in text
    assert HINT not in text
    assert text.endswith(SHOW)
    assert "╯\n" in text


def test_the_cursor_is_hidden_only_while_the_panel_is_shown():
    watcher, terminal = started()
    assert terminal.getvalue().count(HIDE) == 1
    assert SHOW not in terminal.getvalue()
    watcher.on_end()
    watcher.on_end()
    assert terminal.getvalue().count(SHOW) == 1


def test_an_interrupt_is_confirmed_in_the_last_line_at_once_and_in_every_redraw():
    written = []
    watcher, terminal = started(write=written.append)
    watcher.on_interrupt()
    assert written == [f"\r\x1b[2K{HEARD}".encode()]
    terminal.writes.clear()
    watcher.on_iteration(progress())
    assert HEARD in terminal.writes[0]
    watcher.on_end()


def test_a_narrow_terminal_gets_one_line_only():
    written = []
    console = terminal_console(width=20)
    watcher = PanelProgress(console, clock=Clock(), write=written.append)
    watcher.on_start(RunFolder(Path("runs/x")), run_config(), BudgetCfg(iterations=300), None)
    watcher.on_interrupt()
    watcher.on_end()
    assert written == [b"\r\x1b[2Kfinishing this itera"]


def test_an_interrupt_before_the_panel_is_shown_is_a_line_of_its_own():
    written = []
    PanelProgress(terminal_console(), write=written.append).on_interrupt()
    assert written == [f"\n{HEARD}\n".encode()]


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (KeyboardInterrupt, contextlib.nullcontext()),
        (ValueError("boom"), pytest.raises(ValueError, match="boom")),
    ],
    ids=["interrupt", "exception"],
)
def test_the_terminal_is_given_back_however_a_run_ends(tmp_path, monkeypatch, failure, outcome):
    def fail(number):
        if number == 2:
            print("a print of somebody else")
            raise failure

    monkeypatch.setattr(COUNTING, "before_iteration", fail)
    streams = (sys.stdout, sys.stderr)
    console = terminal_console()
    watcher = PanelProgress(console, clock=Clock())
    with outcome:
        train(TrainRequest(task="scripted", backend="scripted", runs=tmp_path), watcher)
    assert (sys.stdout, sys.stderr) == streams
    text = console.file.getvalue()
    assert (text.count(HIDE), text.count(SHOW)) == (1, 1)
    assert text.endswith(SHOW)
    assert "a print of somebody else" in text
    # What was saved after the failure is in the panel that stays.
    assert "saved checkpoints/model_1.pt" in text[text.index("a print") :]


def test_one_interrupt_of_a_real_run_is_confirmed_and_the_terminal_given_back(tmp_path, monkeypatch):
    def interrupt(number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(COUNTING, "before_iteration", interrupt)
    console = terminal_console()
    written = []
    watcher = PanelProgress(console, clock=Clock(), write=written.append)
    outcome = train(TrainRequest(task="scripted", backend="scripted", runs=tmp_path), watcher)
    assert (outcome.status, outcome.iteration) == ("interrupted", 2)
    assert written == [f"\r\x1b[2K{HEARD}".encode()]
    assert console.file.getvalue().endswith(SHOW)


class Tty(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("tty", "plain", "term", "kind"),
    [
        (True, False, "xterm", PanelProgress),
        (True, True, "xterm", PlainProgress),
        (True, False, "dumb", PlainProgress),
        (False, False, "xterm", PlainProgress),
    ],
)
def test_a_panel_is_shown_on_a_terminal_that_can_redraw_unless_lines_are_wanted(
    monkeypatch, tty, plain, term, kind
):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")  # asks for colours in a pipe, not for a panel
    monkeypatch.setattr(sys, "stdout", Tty() if tty else io.StringIO())
    assert type(train_command._watcher(plain)) is kind


def test_plain_lines_name_each_evaluation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ("--backend", "scripted", "--eval-interval", "2", "--plain", "--set", "learner.eval_episodes=4")
    assert main(["train", "scripted-graded", *options]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("evaluation")]
    assert lines[0].startswith(
        "evaluation after iteration 2  return 8.33  length 4.25  reward_per_step 1.96  falls 2  age 3.8  seconds "
    )
    assert [line.split()[3] for line in lines] == ["2", "3"]
