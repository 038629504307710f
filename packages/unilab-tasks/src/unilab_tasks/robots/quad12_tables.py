"""Numbers of the four-legged robots with twelve joints: dimensions, masses, motors, poses.

Rounded from the descriptions that Unitree publishes of its Go1 and Go2. Frames: x forward, y left, z up. Inertias are
about the centre of mass in body axes; products of inertia are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["GO1_LIKE", "GO2_LIKE", "QUAD12_TABLES", "Link", "Quad12Table"]

Vector = tuple[float, float, float]
Range = tuple[float, float]


@dataclass(frozen=True)
class Link:
    """One link as it is on the front left leg; `y` changes sign on the right, `x` of the hip at the rear."""

    offset: Vector
    """Where its joint is in the parent's frame, m."""
    mass: float
    """kg."""
    com: Vector
    """Centre of mass in its own frame, m."""
    inertia: Vector
    """Moments about the centre of mass, kg m^2."""


@dataclass(frozen=True)
class Quad12Table:
    """Everything the builder needs; lengths in m, masses in kg, angles in rad, torques in N m."""

    trunk_mass: float
    trunk_com: Vector
    trunk_inertia: Vector
    hip: Link
    thigh: Link
    calf: Link
    foot_offset: Vector
    """Centre of the foot's sphere in the frame of the calf."""
    foot_radius: float
    hip_range: Range
    front_thigh_range: Range
    rear_thigh_range: Range
    calf_range: Range
    torque: Vector
    """Largest torque of hip, thigh and calf."""
    armature: Vector
    """Inertia of the motors' rotors as the joints feel it, of hip, thigh and calf, kg m^2."""
    home_height: float
    """Height of the trunk's frame at the beginning of an episode."""
    home: dict[str, float] = field(default_factory=dict)
    """Joint positions of the home pose, by full-match regular expression."""
    trunk_half_size: Vector = (0.13, 0.09, 0.05)
    head: tuple[float, float] = (0.24, 0.06)
    """Where the sphere of the head is on the x axis of the trunk, and its radius."""
    hip_radius: float = 0.046
    thigh_radius: float = 0.018
    calf_radius: float = 0.012


GO1_LIKE = Quad12Table(
    trunk_mass=5.204,
    trunk_com=(0.022, 0.002, -0.0005),
    trunk_inertia=(0.0168, 0.0630, 0.0717),
    hip=Link((0.1881, 0.04675, 0.0), 0.680, (-0.0049, -0.0076, 0.0), (0.00040, 0.00073, 0.00047)),
    thigh=Link((0.0, 0.080, 0.0), 1.009, (-0.0030, -0.0193, -0.0305), (0.0046, 0.0047, 0.00082)),
    calf=Link((0.0, 0.0, -0.213), 0.196, (0.0043, 0.0, -0.146), (0.00148, 0.00150, 0.000036)),
    foot_offset=(0.0, 0.0, -0.213),
    foot_radius=0.023,
    hip_range=(-0.863, 0.863),
    front_thigh_range=(-0.686, 4.501),
    rear_thigh_range=(-0.686, 4.501),
    calf_range=(-2.818, -0.888),
    torque=(23.7, 23.7, 35.55),
    armature=(0.00403, 0.00403, 0.00906),
    home_height=0.278,
    home={".R_hip": 0.1, ".L_hip": -0.1, ".*_thigh": 0.9, ".*_calf": -1.8},
)

GO2_LIKE = Quad12Table(
    trunk_mass=6.921,
    trunk_com=(0.021, 0.0, -0.005),
    trunk_inertia=(0.0245, 0.0981, 0.107),
    hip=Link((0.1934, 0.0465, 0.0), 0.678, (-0.0054, 0.0019, 0.0), (0.00048, 0.00088, 0.00060)),
    thigh=Link((0.0, 0.0955, 0.0), 1.152, (-0.0037, -0.0223, -0.0327), (0.0058, 0.0058, 0.0010)),
    calf=Link((0.0, 0.0, -0.213), 0.241, (0.0063, 0.0, -0.141), (0.00146, 0.00149, 0.00005)),
    foot_offset=(-0.002, 0.0, -0.213),
    foot_radius=0.022,
    hip_range=(-1.0472, 1.0472),
    front_thigh_range=(-1.5708, 3.4907),
    rear_thigh_range=(-0.5236, 4.5379),
    calf_range=(-2.7227, -0.83776),
    torque=(23.7, 23.7, 45.43),
    armature=(0.01, 0.01, 0.01),
    home_height=0.3,
    home={".*_hip": 0.0, "F._thigh": 0.8, "R._thigh": 1.0, ".*_calf": -1.5},
)

QUAD12_TABLES = {"go1_like": GO1_LIKE, "go2_like": GO2_LIKE}
"""The tables by the names that configs use."""
