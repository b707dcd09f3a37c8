"""GeoPackages of edges: layers of lines, as OSMnx, QGIS and authorities write them, or tables without geometry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph, NotFound
from storage.geography.coordinates import Coordinates
from storage.geography.layers import ANY, LINES, POINTS, GeoPackage, LayerFacts, named_layers, opened, point_layer
from storage.geography.nodes import join_nodes
from storage.geography.systems import ReferenceSystem
from storage.geography.tables import layer_points
from storage.readers.layers.edges import read_edges
from storage.readers.layers.frames import SAMPLE, sample_of
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

if TYPE_CHECKING:
    import polars as pl

#: The names that OSMnx gives its layers.  If a file has several layers of lines, the layer called ``edges`` is read;
#: coordinates of vertices come from the layer called ``nodes``.
_EDGES: Final = "edges"
_NODES: Final = "nodes"
#: Bytes of memory that each edge takes while the file is read, counted against ``ReadLimits``.
_EDGE: Final = 24


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the layer of edges; raises the errors of ``read_graph``."""
    with source.local() as path, opened(path, options.limits) as package:
        layers = package.layers()
        edges = _edges(layers)
        rows = package.check(edges)
        options.limits.check_arcs(rows)
        options.limits.check_bytes(_EDGE * rows, path.stat().st_size)
        nodes = [layer for layer in layers if layer.name.lower() == _NODES and layer.shape in POINTS | ANY]
        parsed = read_edges(_PackageLayer(package, edges, nodes), options)
    others = [layer for layer in layers if layer not in (edges, *nodes)]
    if others:
        parsed.notes.append(f"layers that are not read: {named_layers(others)}")
    return parsed


def _edges(layers: list[LayerFacts]) -> LayerFacts:
    """Return the layer of edges: the only layer of lines, or the layer called ``edges``; if no layer has lines, a
    table.
    """
    lines = [layer for layer in layers if layer.shape in LINES]
    mixed = [layer for layer in layers if layer.shape in ANY and layer.name.lower() != _NODES]
    tables = [layer for layer in layers if layer.geometry is None]
    for found in (lines, mixed, tables):
        named = [layer for layer in found if layer.name.lower() == _EDGES]
        if len(found) == 1 or len(named) == 1:
            return (named or found)[0]
        if found:
            break
    there = named_layers(layers)
    why = "several may be the edges" if lines or mixed or tables else "none has lines"
    raise InvalidGraph(
        f"which layer holds the edges? The GeoPackage has: {there}, and {why}: save it as a GeoPackage of its own, or "
        f"call it {_EDGES!r}",
        field="layer",
    )


class _PackageLayer:
    """A layer of a GeoPackage in the form that ``read_edges`` takes."""

    def __init__(self, package: GeoPackage, layer: LayerFacts, nodes: list[LayerFacts]) -> None:
        self._package = package
        self._layer = layer
        self._nodes = nodes
        self.title = f"layer {layer.name}"
        self.names = [field.name for field in layer.fields]
        self.numeric = [field.numeric for field in layer.fields]
        self.system: ReferenceSystem | None = None if layer.geometry is None else layer.system

    @cached_property
    def _sample(self) -> list[list[str]]:
        return sample_of(self._package.read(self._layer, self._layer.fields, most=SAMPLE).table)

    def sample(self) -> list[list[str]]:
        """Return some rows as text."""
        return self._sample

    def read(self, names: Sequence[str], *, geometry: bool) -> tuple[pl.DataFrame, list[bytes | None]]:
        """Return the columns ``names``, and the geometries as well-known binary (an empty list without
        ``geometry``).
        """
        fields = [field for name in names for field in self._layer.fields if field.name == name]
        table, shapes = self._package.read(self._layer, fields, geometry=geometry)
        return table, shapes

    def where(self, row: int) -> str:
        """Return a text for messages that says where a row is in the file; ``row`` counts from 0."""
        return self._package.place(self._layer, row)

    def nodes(self, labels: npt.NDArray[np.generic], asked: str | None) -> tuple[Coordinates | None, list[str]]:
        """Return the coordinates of the vertices ``labels`` from the layer of nodes (None without such a layer), and
        notes.
        """
        if not self._nodes:
            return None, []
        [layer, *_] = self._nodes
        points = layer_points(layer.name, point_layer(self._package, layer))
        if points.ids is None:
            return None, [f"layer {layer.name} has no column of ids, such as osmid, so it is not read"]
        try:
            return join_nodes(points, labels, asked if points.system is None else None)
        except NotFound as error:
            return None, [f"layer {layer.name} is not read: {error}"]
