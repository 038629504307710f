"""What the package's author runs: `pytest tests/springs_conformance.py`."""

from springs.model import two_masses

from unisim import Declared, EntityCfg, SceneCfg, SimCfg, make_backend
from unisim.testing import BackendConformance


class TestSprings(BackendConformance):
    """The suite of `unisim`, on the backend as everybody gets it: by its name."""

    backend_name = "springs"
    declared_fields = ("body_mass", "dof_damping")
    declared_wrench_bodies = ("robot/base",)
    declared_substep_sensors = ("place",)

    def make_backend(self, num_envs):
        declared = Declared(
            self.declared_fields, self.declared_wrench_bodies, self.declared_substep_sensors, self.decimation
        )
        scene = SceneCfg(entities={"robot": EntityCfg(spec=two_masses)})
        return make_backend("springs", scene, SimCfg(), num_envs=num_envs, declared=declared)
