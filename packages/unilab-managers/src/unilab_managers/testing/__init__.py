"""For the tests of tasks and terms: `check_task`, and environments of one term on a scripted backend."""

from unilab_managers.checking.findings import CheckReport, Finding
from unilab_managers.testing.check import check_task
from unilab_managers.testing.term_bench import TermBench

__all__ = ["CheckReport", "Finding", "TermBench", "check_task"]
