"""An export is complete and does what the policy does, in every file, or there is none."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from export_support import DESCRIPTION, SOURCE, DescribedEnv, NetworkPolicy, described, files_in
from torch import nn

from unilab_core import CapabilityError, ConfigError, NonFiniteError, TermDescription
from unilab_rl.export import exporter
from unilab_rl.export.exporter import export_policy
from unilab_rl.export.metadata import metadata
from unilab_rl.export.observations import Spread, observed_spread
from unilab_rl.export.parity import ParityError, check_parity
from unilab_rl.export.policy_runner import PolicyRunner
from unilab_rl.export.program import PolicyProgram
from unilab_rl.export.targets import target_law
from unilab_rl.export.torchscript import load_torchscript

ALL = ["policy.json", "policy.npz", "policy.onnx", "policy.pt", "policy_runner.py"]


class Normalised(nn.Module):
    """y = (x - 1) / 2: a normaliser with the mean 1 and the deviation 2, and a linear actor that changes nothing."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(2))
        self.register_buffer("std", torch.full((2,), 2.0))
        self.actor = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.actor.weight.copy_(torch.eye(2))

    def forward(self, obs):
        return self.actor((obs - self.mean) / self.std)


def export(folder, network=None, env=None, **changes):
    return export_policy(
        env or DescribedEnv(), NetworkPolicy(network or Normalised()), SOURCE, folder / "made", **changes
    )


def metadata_of(folder):
    return json.loads((folder / "policy.json").read_text())


def numpy_outputs(folder, obs):
    return PolicyRunner(folder)(obs)


def onnx_outputs(folder, obs):
    session = onnxruntime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])
    return session.run(["actions", "targets"], {"obs": obs})


def torchscript_outputs(folder, obs):
    return [part.numpy() for part in load_torchscript(folder / "policy.pt")(torch.from_numpy(obs))]


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("outputs", [numpy_outputs, onnx_outputs, torchscript_outputs])
def test_every_file_normalises_raw_observations_and_gives_actions_and_targets(tmp_path, outputs, batch):
    made = export(tmp_path)
    rows = np.full((batch, 2), 3.0, np.float32)
    rows[-1] = [9.0, 0.5]
    actions, targets = outputs(made.folder, rows)
    assert actions.tolist() == [*[[1.0, 1.0]] * (batch - 1), [4.0, -0.25]]
    # hip: clip(0.5 a + 0.25, -0.5, 0.75); wheel: clip(2 a, -1, 1)
    assert targets.tolist() == [*[[0.75, 1.0]] * (batch - 1), [0.75, -0.5]]


def test_what_was_written_is_told_and_nothing_else_lies_there(tmp_path):
    made = export(tmp_path)
    assert made.folder == tmp_path / "made"
    assert list(made.files) == files_in(made.folder) == ALL
    assert set(made.parity) == {"policy.npz", "policy.onnx", "policy.pt"}
    assert max(made.parity.values()) <= 1e-5
    assert made.no_targets is None
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("formats", "missing"), [(("onnx",), "policy.pt"), (("torchscript",), "policy.onnx")]
)
def test_one_format_alone_leaves_the_other_out(tmp_path, formats, missing):
    made = export(tmp_path, formats=formats)
    assert files_in(made.folder) == [name for name in ALL if name != missing]
    assert missing not in metadata_of(made.folder)["files"]


def test_the_metadata_names_every_column_with_unit_scale_and_age(tmp_path):
    data = metadata_of(export(tmp_path).folder)
    assert data["observations"]["columns"] == [
        {"label": "count[0][t-1]", "unit": "rad", "term": "count", "scale": 0.1, "steps_ago": 1},
        {"label": "row[0]", "unit": "", "term": "row", "scale": 4.0, "steps_ago": 0},
    ]
    assert data["observations"]["group"] == "obs"
    assert [term["name"] for term in data["observations"]["terms"]] == ["count", "row"]
    hip, wheel = data["actions"]
    assert hip == {
        "label": "legs:hip",
        "actuator": "robot/hip_servo",
        "joint": "robot/hip",
        "bounds": [-1.5, 1.0],
        "quantity": "position",
        "control_column": 1,
        "delay_steps": [1, 2],
        "scale": 0.5,
        "offset": 0.25,
        "clip": [-0.5, 0.75],
    }
    assert (wheel["control_column"], wheel["quantity"], wheel["clip"]) == (0, "effort", [-1.0, 1.0])
    assert [joint["name"] for joint in data["joints"]] == ["robot/root", "robot/wheel", "robot/hip"]
    assert [actuator["name"] for actuator in data["actuators"]] == data["control"]
    assert (data["schema_version"], data["step_dt"], data["episode_length_s"]) == (1, 0.5, 2.5)
    assert (data["task"], data["algorithm"], data["iteration"], data["env_steps"]) == (
        "scripted",
        "ppo",
        10,
        480,
    )
    assert (data["checkpoint"], data["versions"]) == ("model_10.pt", {"torch": "2"})
    assert set(data["files"]) == set(ALL) - {"policy.json"}
    assert set(data["parity"]) == {"policy.npz", "policy.onnx", "policy.pt"}


def test_frames_of_a_history_have_the_scales_of_their_columns():
    labels = ("a[x][t-1]", "a[y][t-1]", "a[x][t-0]", "a[y][t-0]", "b[0]")
    terms = (
        TermDescription("obs/a", "f:a", settings={"scale": (2.0, 3.0)}, columns=labels[:4]),
        TermDescription("obs/b", "f:b", settings={"scale": None}, columns=labels[4:]),
    )
    description = described(observations={"obs": labels}, units={}, terms={"observations": terms})
    columns = metadata(SOURCE, description, None, "unknown", PolicyProgram((), {}, "obs"))["observations"][
        "columns"
    ]
    shown = [(column["term"], column["scale"], column["steps_ago"], column["unit"]) for column in columns]
    assert shown == [
        ("a", 2.0, 1, ""),
        ("a", 3.0, 1, ""),
        ("a", 2.0, 0, ""),
        ("a", 3.0, 0, ""),
        ("b", 1.0, 0, ""),
    ]


def test_onnx_and_torchscript_hold_the_metadata_and_the_weights_themselves(tmp_path):
    folder = export(tmp_path).folder
    model = onnx.load(folder / "policy.onnx", load_external_data=False)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [
        "batch",
        2,
    ]
    (inside,) = [entry.value for entry in model.metadata_props if entry.key == "policy.json"]
    about = {"policy.json": ""}
    with pytest.warns(FutureWarning, match="deprecated"):
        torch.jit.load(str(folder / "policy.pt"), _extra_files=about)
    whole = metadata_of(folder)
    for text in (inside, about["policy.json"]):
        assert json.loads(text) == {key: whole[key] for key in whole.keys() - {"network", "files", "parity"}}


def test_the_runner_needs_numpy_and_nothing_else(tmp_path):
    folder = export(tmp_path).folder
    program = (
        "import sys; sys.path.insert(0, '.'); from policy_runner import PolicyRunner; r = PolicyRunner('.'); "
        "action, target = r([3.0, 0.5]); print(action.tolist(), target.tolist(), r.joint_names, r.action_labels); "
        "print(sorted({'torch', 'onnx', 'onnxruntime', 'unilab_rl', 'unilab_core', 'pydantic'} & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-I", "-B", "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == [
        "[1.0, -0.25] [0.75, -0.5] ('robot/hip', 'robot/wheel') ('legs:hip', 'drive:wheel')",
        "[]",
    ]


def test_the_runner_refuses_what_does_not_belong_together(tmp_path):
    folder = export(tmp_path).folder
    runner = PolicyRunner(folder)
    for wrong in (np.zeros(3), np.zeros((2, 3)), np.zeros((1, 1, 2))):
        with pytest.raises(ValueError, match=r"shape \(.*expected \(2,\) or \(B, 2\)"):
            runner.action(wrong)
    text = (folder / "policy.json").read_text()
    (folder / "policy.json").write_text(text.replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(ValueError, match="schema_version is 2, expected 1"):
        PolicyRunner(folder)
    (folder / "policy.json").write_text(text)
    (folder / "policy.npz").write_bytes((folder / "policy.npz").read_bytes() + b"x")
    with pytest.raises(ValueError, match="damaged, or of another export"):
        PolicyRunner(folder)


def test_without_a_law_of_the_targets_actions_are_exported_and_the_reason_is_told(tmp_path):
    env = DescribedEnv()
    env.description = described(terms={})
    made = export(tmp_path, env=env)
    assert "no action term of the environment describes the column 'legs:hip'" in made.no_targets
    session = onnxruntime.InferenceSession(made.folder / "policy.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["actions"]
    assert load_torchscript(made.folder / "policy.pt")(torch.full((1, 2), 3.0)).tolist() == [[1.0, 1.0]]
    runner = PolicyRunner(made.folder)
    action, target = runner([3.0, 0.5])
    assert (action.tolist(), target) == ([1.0, -0.25], None)
    with pytest.raises(ValueError, match="not known: no action term"):
        runner.target(action)
    hip = metadata_of(made.folder)["actions"][0]
    assert [hip[key] for key in ("scale", "offset", "clip", "quantity")] == [None] * 4


# ---------------------------------------------------------------- all or nothing


class Drifting(NetworkPolicy):
    """A policy that acts a little otherwise than its network."""

    drift = 2e-5

    def __call__(self, obs):
        return super().__call__(obs) + self.drift


def test_a_file_that_differs_from_the_policy_is_not_written_and_an_older_export_stays(tmp_path):
    export(tmp_path)
    before = (tmp_path / "made" / "policy.onnx").read_bytes()
    policy = Drifting(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    for folder in ("made", "new"):
        with pytest.raises(ParityError, match=r"policy.npz differs from the policy by 2e-05 in batches of 1"):
            export_policy(DescribedEnv(), policy, SOURCE, tmp_path / folder, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert files_in(tmp_path / "made") == ALL
    assert (tmp_path / "made" / "policy.onnx").read_bytes() == before


@pytest.mark.parametrize("step", ["_write_json", "check_parity", "_hashes"])
def test_a_failure_on_the_way_leaves_nothing(tmp_path, monkeypatch, step):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporter, step, full)
    with pytest.raises(OSError, match="No space left"):
        export(tmp_path)
    assert files_in(tmp_path) == []


def test_a_failure_of_the_last_step_brings_the_replaced_export_back(tmp_path, monkeypatch):
    export(tmp_path)
    before = (tmp_path / "made" / "policy.json").read_bytes()

    def rename(source, target, rename=exporter.os.rename):
        if str(source).endswith(".tmp"):
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(exporter.os, "rename", rename)
    with pytest.raises(OSError, match="no"):
        export(tmp_path, nn.Linear(2, 2), replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (tmp_path / "made" / "policy.json").read_bytes() == before


def test_a_replaced_export_is_replaced_as_a_whole(tmp_path):
    export(tmp_path)
    (tmp_path / "made" / "notes.txt").write_text("of the old one")
    with pytest.raises(OSError, match="not empty"):
        export(tmp_path)
    assert (tmp_path / "made" / "notes.txt").exists()
    export(tmp_path, formats=("torchscript",), replace=True)
    assert files_in(tmp_path) == ["made", *(f"made/{name}" for name in ALL if name != "policy.onnx")]


# ---------------------------------------------------------------- what can't be exported


def test_a_policy_that_is_no_network_is_refused(tmp_path):
    with pytest.raises(CapabilityError, match="algorithm 'ppo' can't be exported: a function has no module"):
        export_policy(DescribedEnv(), lambda obs: obs["obs"], SOURCE, tmp_path / "made")
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observations": {"obs": ("one",)}},
            "1 labels and 2 units for the 2 columns of the observation group 'obs'",
        ),
        ({"units": {"obs": ("m",)}}, "2 labels and 1 units for the 2 columns"),
        ({"actions": DESCRIPTION.actions[:1]}, "1 labels for the 2 columns of the action"),
    ],
)
def test_a_description_of_something_else_is_refused(tmp_path, changes, message):
    env = DescribedEnv()
    env.description = described(**changes)
    with pytest.raises(ConfigError, match=message):
        export(tmp_path, env=env)
    assert files_in(tmp_path) == []


def test_a_network_that_breaks_far_out_is_refused(tmp_path):
    class Bursting(nn.Module):
        def forward(self, obs):
            return torch.exp(0.1 * obs.mul(obs))

    with pytest.raises(NonFiniteError, match="not finite on observations 1 standard deviations"):
        export(tmp_path, Bursting())
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", ["numpy", "onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_extra(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        CapabilityError, match=rf'exports need {name}: pip install "unilab-rl\[export\]>=2.0,<3"'
    ):
        export(tmp_path)
    assert files_in(tmp_path) == []


# ---------------------------------------------------------------- what exports are tried on


def test_observations_are_looked_at_while_the_policy_acts():
    # Five steps an episode: columns [100 episode + age, row] at ages 0 to 50, from the first reset on.
    spread = observed_spread(DescribedEnv(), NetworkPolicy(Normalised()), seed=3)
    counts = np.array([100 * (step // 5) + step % 5 for step in range(51)], float)
    counts = np.repeat(counts, 4)
    np.testing.assert_allclose(spread.mean, [counts.mean(), 1.5], rtol=1e-6)
    np.testing.assert_allclose(spread.std, [counts.std(ddof=1), np.tile(range(4), 51).std(ddof=1)], rtol=1e-6)


def test_a_column_that_never_changes_counts_by_units():
    class Constant(DescribedEnv):
        def _write(self, groups):
            for tensor in groups.values():
                tensor.fill_(0.1)

    spread = observed_spread(Constant(), NetworkPolicy(Normalised()), seed=3)
    assert spread.std.tolist() == [1.0, 1.0]


def test_drawn_observations_reach_as_far_as_is_said_and_no_farther():
    spread = Spread(torch.tensor([10.0, 0.0]), torch.tensor([2.0, 0.5]))
    drawn = spread.draw(1000, 50.0, torch.Generator().manual_seed(0))
    deviations = ((drawn - spread.mean) / spread.std).abs()
    assert (deviations <= 50.0).all()
    assert (deviations.amax(dim=0) > 49.0).all()


def checked(run, law=None, network=None):
    policy = NetworkPolicy(network or nn.Identity())
    spread = Spread(torch.zeros(2), torch.ones(2))
    return check_parity(policy, law, spread, {"file": run}, torch.device("cpu"))


def test_the_worst_difference_is_told_as_a_share_of_the_largest_number():
    worst = checked(lambda obs: (torch.where(obs.abs() > 40.0, obs + 2e-4, obs), None))
    assert worst["file"] == pytest.approx(2e-4 / 50, rel=0.1)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        # only far out, only near, only in batches of 7, only in batches of 1
        (lambda obs: (torch.where(obs.abs() > 49.0, obs + 1e-3, obs), None), "up to 50 standard deviations"),
        (lambda obs: (torch.where(obs.abs() < 0.5, obs + 2e-5, obs), None), "up to 1 standard deviations"),
        (lambda obs: (obs + (1.0 if obs.shape[0] == 7 else 0.0), None), "in batches of 7"),
        (lambda obs: (obs + (1.0 if obs.shape[0] == 1 else 0.0), None), "in batches of 1"),
        (lambda obs: (obs * float("nan"), None), "by nan"),
        (lambda obs: (obs, obs), "by nan"),
    ],
)
def test_a_difference_shows_wherever_it_is(run, message):
    with pytest.raises(ParityError, match=message):
        checked(run)


def test_targets_are_compared_too():
    law = target_law(DESCRIPTION)
    assert checked(lambda obs: (obs, law(obs)), law) == {"file": 0.0}
    with pytest.raises(ParityError, match="file differs from the policy by 2e-05"):
        checked(lambda obs: (obs, law(obs) + 2e-5), law)
    with pytest.raises(ParityError, match="by nan"):
        checked(lambda obs: (obs, None), law)
