"""Facts that the engine computes about a graph before solving it: orders of vertices, parts, potentials, bounds."""

from engine.model.system import use_level

use_level()
