"""The whole suite, one class."""

from __future__ import annotations

from unisim.testing.conformance.accelerations import AccelerationPromises
from unisim.testing.conformance.cold import ColdPromises
from unisim.testing.conformance.lifecycle import LifecyclePromises
from unisim.testing.conformance.model import ModelPromises
from unisim.testing.conformance.plan import PlanPromises
from unisim.testing.conformance.reads import ReadPromises
from unisim.testing.conformance.resets import ResetPromises
from unisim.testing.conformance.steps import StepPromises
from unisim.testing.conformance.writes import WritePromises

__all__ = ["BackendConformance"]


class BackendConformance(
    ReadPromises,
    StepPromises,
    AccelerationPromises,
    ResetPromises,
    ModelPromises,
    WritePromises,
    PlanPromises,
    ColdPromises,
    LifecyclePromises,
):
    """The contract of `SimBackend`, sentence by sentence, for any backend.

    ```python
    class TestMyBackend(BackendConformance):
        def make_backend(self, num_envs):
            return MyBackend(num_envs)
    ```
    Each test pins one sentence of the contract and names it when it fails. What a backend does not offer, by its
    capabilities or its model, is recorded as not applicable, with the reason. The evidence of a run is a JSON file; see
    `evidence_path`. A model with a joint, an actuator, a sensor of each stage and a site leaves least to that.
    """
