"""What a recorder of one's own may look at, and be called."""

from typing import Any

from manager_support import MakeEnv, calls, ids, zeros

from unilab_managers import ManagerBasedRlEnv, RecorderTermCfg


class SeesState:
    """Looks at the outcome of the last step in every hook, from construction on."""

    def __init__(self, cfg: RecorderTermCfg, env: ManagerBasedRlEnv) -> None:
        self._env = env

    def _note(self, hook: str) -> None:
        state = self._env.state
        calls.append((hook, state.reward.tolist(), sorted(state.obs), state.terminated.shape))

    def record_pre_reset(self, env_ids: Any) -> None:
        self._note("pre")

    def record_post_reset(self, env_ids: Any) -> None:
        self._note("post")

    def record_post_step(self) -> None:
        self._note("step")


def test_a_recorder_may_look_at_the_state_in_every_hook(make_env: MakeEnv) -> None:
    env = make_env(2, recorders={"state": RecorderTermCfg(func=SeesState)}, scale_rewards_by_dt=False)
    calls.clear()
    env.step(zeros(env))
    env.reset(ids(1))
    assert [hook for hook, *_ in calls] == ["step", "pre", "post"]
    assert calls[0][1:] == ([1.0, 1.0], ["obs"], (2,))


class HasNamesLikeHooks(SeesState):
    """Has attributes that sound like hooks and are none."""

    closed = False

    def _close(self) -> None:
        pass

    def _record_post_steps(self) -> None:
        pass


def test_a_recorders_own_names_are_its_own() -> None:
    RecorderTermCfg(func=HasNamesLikeHooks)
