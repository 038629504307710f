"""Each way in which a page can be wrong, seeded alone, with the line that check_docs prints."""

from __future__ import annotations

import click
import pytest

from _pages import Page
from check_docs import CommandLine, check


@click.command()
@click.argument("task")
@click.option("--steps", type=click.IntRange(min=1))
@click.option("--video", is_flag=False, flag_value="")
def train(task, steps, video):
    raise AssertionError("a command of the docs is parsed, not run")


@click.command()
@click.argument("tasks", nargs=-1)
def doctor(tasks):
    raise AssertionError("a command of the docs is parsed, not run")


@click.command()
@click.argument("dump", type=click.Path(exists=True))
def replay(dump):
    raise AssertionError("a command of the docs is parsed, not run")


LINE = CommandLine({"train": lambda: train, "replay": lambda: replay}, frozenset({"cartpole"}))
GUIDE = "docs/guide.md"


def errors(tree, text, name=GUIDE):
    tree.write(name, text)
    return list(check(tree.root, LINE))


def test_a_page_without_a_fault_passes(tree):
    tree.write("packages/top/tests/test_top.py", "class TestAll:\n    def test_it(self): ...\n")
    text = """
    # A guide

    See [below](#two-words), [the other](other.md#one-more), [the code](../packages/top), [a place](https://x.org/#y).
    `unilab train`, `unilab train cartpole --steps 3` and `packages/top/tests/test_top.py::test_it`.

    ## Two `words`

    ```python
    one = 1
    ```

    ```pycon
    >>> one + 1
    2
    ```

    ```
    $ unilab train CARTPOLE --video           # any name is fine
    python3 dev.py run --locked unilab train cartpole --video=walk.mp4
    unilab replay dumps/none.pt
    unilab train <task>
    unilab train --help
    the unilab trainer is no command
    ```
    """
    tree.write("docs/other.md", "## One more\n\n## One more\n")
    assert errors(tree, text) == []


# ---------------------------------------------------------------- examples


def test_blocks_of_a_page_share_one_namespace_and_pages_do_not(tree):
    tree.write("docs/a.md", "```python\nvalue = 1\n```\n\n```python\nassert value == 1\n```\n")
    found = errors(tree, "```python\nassert value == 1\n```\n")
    assert len(found) == 1
    assert found[0].startswith("docs/guide.md: its examples fail:\n")
    assert "NameError: name 'value' is not defined" in found[0]


def test_a_failure_shows_the_line_of_the_page(tree):
    (found,) = errors(tree, "# Title\n\n```python\none = 1\nraise ValueError('wrong')\n```\n")
    assert 'guide.md", line 5' in found
    assert found.endswith("ValueError: wrong")


def test_what_is_wrong_with_several_pages_is_said_page_by_page(tree):
    for name in "abc":
        text = f"[gone]({name}/gone.md)\n\n```python\nraise ValueError('{name} is wrong')\n```\n"
        tree.write(f"docs/{name}.md", text)
    last_lines = [error.splitlines()[-1] for error in check(tree.root, LINE)]
    assert last_lines == [
        "docs/a.md:1: the link a/gone.md leads nowhere",
        "ValueError: a is wrong",
        "docs/b.md:1: the link b/gone.md leads nowhere",
        "ValueError: b is wrong",
        "docs/c.md:1: the link c/gone.md leads nowhere",
        "ValueError: c is wrong",
    ]


def test_a_doctest_that_prints_something_else_fails_with_its_line(tree):
    (found,) = errors(tree, "```python\none = 1\n```\n\n```pycon\n>>> one\n1\n>>> one + 1\n3\n```\n")
    assert 'guide.md", line 8' in found
    assert "Expected:\n    3\nGot:\n    2" in found


def test_names_of_a_doctest_are_there_in_later_blocks(tree):
    assert errors(tree, "```pycon\n>>> two = 2\n```\n\n```python\nassert two == 2\n```\n") == []


def test_a_block_that_does_not_parse_is_named_by_its_line_and_not_run(tree):
    found = errors(tree, "# Title\n\n```python\none = 1\ntwo = = 2\n```\n")
    assert found == ["docs/guide.md:5: invalid syntax"]


def test_examples_of_a_readme_are_parsed_and_run_elsewhere(tree):
    assert errors(tree, "```python\nraise ValueError\n```\n", "packages/top/README.md") == []
    assert errors(tree, "```python\ntwo = = 2\n```\n", "README.md") == ["README.md:2: invalid syntax"]


def test_a_block_that_is_never_closed_is_an_error(tree):
    with pytest.raises(ValueError, match=r"guide.md:3: a block is opened and never closed"):
        errors(tree, "# Title\n\n```python\none = 1\n")


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trian cartpole", "there is no command 'trian', only replay, train"),
        ("train cartpole --stesp 3", "No such option '--stesp'"),
        ("train cartpole --steps many", "Invalid value for '--steps'"),
        ("train cartpole --steps 0", "Invalid value for '--steps'"),
        ("train cartpole twice", "Got unexpected extra argument (twice)"),
        ("train", "Missing argument 'TASK'"),
        ("train swingup", "there is no task 'swingup', only cartpole"),
    ],
)
def test_a_command_line_that_would_not_work_is_found(tree, command, message):
    (found,) = errors(tree, f"# Title\n\n```text\nunilab {command}\n```\n")
    assert found.startswith(f"docs/guide.md:4: unilab {command}: {message}")


def test_a_command_of_any_number_of_tasks_may_name_none_or_several_that_exist(tree):
    line = CommandLine({"doctor": lambda: doctor}, frozenset({"cartpole"}))
    tree.write(GUIDE, "# Title\n\n```text\nunilab doctor\nunilab doctor cartpole CARTPOLE\n```\n")
    assert list(check(tree.root, line)) == []
    tree.write(GUIDE, "# Title\n\n```text\nunilab doctor cartpole swingup\n```\n")
    (found,) = check(tree.root, line)
    assert (
        found == "docs/guide.md:4: unilab doctor cartpole swingup: there is no task 'swingup', only cartpole"
    )


def test_a_command_in_running_text_may_leave_arguments_out_but_invents_no_option(tree):
    assert errors(tree, "Type `unilab train`.\n") == []
    (found,) = errors(tree, "One.\n\nType `uv run unilab train --fast`.\n")
    assert found.startswith("docs/guide.md:3: unilab train --fast: No such option '--fast'")


def test_a_task_that_the_page_registers_is_known(tree):
    text = '```python\nTaskSpec = dict\nTaskSpec(name="mine")\n```\n\n```text\nunilab train mine\n```\n'
    assert errors(tree, text) == []


def test_a_task_that_an_example_registers_may_be_named(tree):
    tree.write("examples/mine/src/mine/register.py", 'register_task(TaskSpec(name="mine", env_cfg="m:f"))\n')
    assert errors(tree, "```text\nunilab train mine\n```\n") == []
    (found,) = errors(tree, "```text\nunilab train yours\n```\n")
    assert found.endswith("there is no task 'yours', only cartpole, mine")


# ---------------------------------------------------------------- tests


def test_a_test_that_does_not_exist_is_found(tree):
    tree.write("packages/top/tests/test_top.py", "def test_it(): ...\n")
    text = "One.\n\n`packages/top/tests/test_top.py::test_that` and `packages/top/tests/gone.py::test_it`\n"
    assert errors(tree, text) == [
        "docs/guide.md:3: packages/top/tests/test_top.py has no test test_that",
        "docs/guide.md:3: there is no file packages/top/tests/gone.py",
    ]


FAULTS = """\
| id | tested by |
| --- | --- |
| QA-001 | `packages/top/tests/test_top.py::test_qa_001_one` |
| QA-002 | Not yet. |
"""


@pytest.fixture
def with_faults(tree):
    tree.write("packages/top/tests/test_top.py", "def test_qa_001_one(): ...\n")
    tree.write("docs/faults.md", FAULTS)
    return tree


def test_a_table_of_faults_without_a_fault_passes(with_faults):
    assert list(check(with_faults.root, LINE)) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Not yet. ", "", "docs/faults.md:4: QA-002 has neither a test nor a reason why there is none"),
        ("QA-002", "QA-001", "docs/faults.md:4: QA-001 has a row in line 3 already"),
    ],
)
def test_a_wrong_row_of_faults_is_found(with_faults, old, new, message):
    with_faults.replace("docs/faults.md", old, new)
    assert list(check(with_faults.root, LINE)) == [message]


def test_a_test_of_another_fault_is_found(with_faults):
    with_faults.replace("docs/faults.md", "Not yet.", "`packages/top/tests/test_top.py::test_qa_001_one`")
    assert list(check(with_faults.root, LINE)) == ["docs/faults.md:4: QA-002 cites a test of QA-001"]


def test_a_fault_that_is_tested_and_has_no_row_is_found(with_faults):
    with_faults.write("packages/middle/tests/test_mine.py", "def test_check_1_qa_003_three(): ...\n")
    assert list(check(with_faults.root, LINE)) == [
        "docs/faults.md: packages/middle/tests/test_mine.py tests QA-003, which has no row"
    ]


# ---------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gone.md", "the link gone.md leads nowhere"),
        ("../../outside.md", "the link ../../outside.md leads nowhere"),
        ("#nothing", "this page has no heading #nothing"),
        ("../README.md#nothing", "../README.md has no heading #nothing"),
    ],
)
@pytest.mark.parametrize("mark", ["", "!"])
def test_a_link_that_leads_nowhere_is_found(tree, target, message, mark):
    tree.write("README.md", "# Title\n")
    assert errors(tree, f"# Title\n\n{mark}[here]({target})\n") == [f"docs/guide.md:3: {message}"]


def test_links_in_code_are_no_links(tree):
    assert errors(tree, "`[a](gone.md)`\n\n```text\n[a](gone.md)\n```\n") == []


def test_headings_that_are_alike_are_numbered():
    page = Page(
        None, "# One `two`\n\n## It's three-fold, too\n\n## One two\n\n```python\n# no heading\n```\n"
    )
    assert page.anchors == {"one-two", "its-three-fold-too", "one-two-1"}
