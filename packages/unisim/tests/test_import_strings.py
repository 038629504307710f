"""Import strings: how a config names code, both ways."""

from __future__ import annotations

import functools

import pytest
import torch
from unisim_support import Counter, TermCfg, square

from unisim import Cfg, ConfigError, Params, import_object, import_string


class Base:
    """Something with a method of the class."""

    @classmethod
    def make(cls) -> None:
        """Is found by its class."""


class Derived(Base):
    """Inherits the method, whose name says another class."""


def shadowed() -> int:
    """Loses its name to the next one."""
    return 1


lost = shadowed


def shadowed() -> int:
    """Takes the name over."""
    return 2


class LocalCfg(Cfg):
    """A config of a test module."""

    params: Params = {}


def test_a_function_and_its_import_string_lead_to_each_other():
    assert import_string(square) == "unisim_support:square"
    assert import_object("unisim_support:square") is square


def test_a_nested_name_is_followed():
    assert import_object("unisim_support:Counter.count") is Counter.count


@pytest.mark.parametrize("text", ["square", "unisim_support.square", ":square", "unisim_support:", ""])
def test_a_string_of_another_form_is_refused(text):
    with pytest.raises(ConfigError, match="is not an import string; expected 'package.module:name'"):
        import_object(text)


@pytest.mark.parametrize("module", ["no_such_module_here", ".relative", "unisim..errors"])
def test_a_module_that_cannot_be_imported_is_named(module):
    with pytest.raises(ConfigError, match="cannot import module"):
        import_object(f"{module}:name")


def test_a_module_that_fails_while_it_is_imported_is_a_config_error(tmp_path, monkeypatch):
    (tmp_path / "broken_module_of_a_test.py").write_text("raise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot import module 'broken_module_of_a_test' \(boom\)"):
        import_object("broken_module_of_a_test:name")


def test_a_name_that_the_module_lacks_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'unisim_support' has no 'sqare'; did you mean 'square'\?"):
        import_object("unisim_support:sqare")


def test_a_lambda_has_no_import_string():
    with pytest.raises(ConfigError, match="is a lambda or a local function"):
        import_string(lambda: None)


def test_a_local_function_has_no_import_string():
    def local() -> None: ...

    with pytest.raises(ConfigError, match="is a lambda or a local function"):
        import_string(local)


def test_a_partial_has_no_import_string():
    with pytest.raises(
        ConfigError, match="has no import string; use a function or class defined at module level"
    ):
        import_string(functools.partial(square, 2))


def test_a_method_of_one_object_has_no_import_string():
    with pytest.raises(ConfigError, match="is a method of one object"):
        import_string(Counter().count)


def test_a_function_of_c_is_named_as_its_module_shows_it():
    # torch.relu.__qualname__ is _VariableFunctionsClass.relu, a class that torch does not show.
    assert import_string(torch.relu) == "torch:relu"
    cfg = TermCfg(func=torch.relu, params={"inner": torch.exp})
    assert TermCfg.from_yaml(cfg.to_yaml()) == cfg


def test_a_function_whose_name_leads_to_another_is_refused():
    with pytest.raises(ConfigError, match=r"test_import_strings:shadowed does not lead back to <function"):
        TermCfg(func=lost)


def test_a_method_of_a_class_leads_back_and_an_inherited_one_is_refused():
    assert import_string(Base.make).endswith("test_import_strings:Base.make")
    with pytest.raises(ConfigError, match=r"Base\.make does not lead back to <bound method"):
        import_string(Derived.make)


def test_code_of_a_test_module_leads_back():
    cfg = LocalCfg(params={"maker": Base, "function": shadowed})
    assert LocalCfg.from_yaml(cfg.to_yaml()) == cfg


def test_code_of_a_script_leads_back(program):
    finished = program("""
from unisim import Cfg, Func
def double(value): return 2 * value
class ScriptCfg(Cfg):
    func: Func = double
class SpecialCfg(ScriptCfg):
    other: int = 1
class HolderCfg(Cfg):
    part: ScriptCfg = SpecialCfg(other=3)
assert HolderCfg.from_yaml(HolderCfg().to_yaml()) == HolderCfg()
""")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_field_of_code_takes_the_function_or_its_import_string():
    assert TermCfg(func="unisim_support:cube").func(2.0) == 8.0
    assert TermCfg(func=square).func(3.0) == 9.0


def test_a_field_of_code_refuses_what_cannot_be_called():
    with pytest.raises(ConfigError, match=r"func: 3 is not callable"):
        TermCfg(func=3)


def test_a_field_of_code_refuses_a_lambda_when_it_is_set_not_when_it_is_written():
    with pytest.raises(ConfigError, match="lambda or a local function"):
        TermCfg(func=lambda value: value)


def test_a_field_of_code_names_its_path_when_the_import_fails():
    with pytest.raises(ConfigError, match=r"func: 'unisim_support:sqare': 'unisim_support' has no 'sqare'"):
        TermCfg(func="unisim_support:sqare")
