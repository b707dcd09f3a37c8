"""The colours of distances on the dashboard, in ``apsp plot`` and in notebooks: light is near, dark is far.

``service/dashboard/static/heat.js`` has a copy of ``STOPS``; a test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap

#: Red, green and blue of evenly spaced distances, the nearest first.
STOPS: Final = ((255, 247, 214), (176, 220, 186), (79, 176, 162), (32, 122, 140), (35, 74, 112), (38, 28, 66))
#: Background and line colour of the hatching that stands for *no path*; no distance has these colours.
NO_PATH: Final = ("#cfcbc3", "#7d786e")
#: Colour of the bars of histograms: the accent colour of the dashboard.
BARS: Final = "#0f766a"
#: Colours of lines across histograms: INK is the colour of text, MARK contrasts with the bars.
INK: Final = "#1d1c1a"
MARK: Final = "#ac3122"


def colour_map() -> LinearSegmentedColormap:
    """Return the colours for matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("apsp", [tuple(part / 255 for part in stop) for stop in STOPS])
