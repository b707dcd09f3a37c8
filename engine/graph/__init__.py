"""Facts about one graph: its vertex order, parts, potentials and selected vertices."""

from engine.model.system import use_level

use_level()
