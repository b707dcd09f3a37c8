"""Facts that the engine computes about a graph before it solves it: vertex order, parts, potentials, selected
vertices.
"""

from engine.model.system import use_level

use_level()
