"""The sinks there are, held to their contract."""

from __future__ import annotations

import numpy as np

from engine.model.rows import ArraySink
from engine.rows.floats import FloatSink
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from tests.contracts.sink import COLUMNS, ROWS, SinkContract
from tests.stores import UNREACHABLE, line_graph


class TestArraySink(SinkContract):
    def make(self, tmp_path, dtype):
        return ArraySink((ROWS, COLUMNS), dtype)

    def finish(self, sink):
        return sink.array


class TestFloatSink(SinkContract):
    def make(self, tmp_path, dtype):
        self.dtype, self.out = dtype, np.zeros((ROWS, COLUMNS))
        return FloatSink(self.out, UNREACHABLE[dtype])

    def finish(self, sink):
        return np.where(np.isinf(self.out), UNREACHABLE[self.dtype], self.out).astype(self.dtype)


class TestMatrixWriter(SinkContract):
    compression = "none"

    def make(self, tmp_path, dtype):
        self.path = tmp_path / "store.zarr"
        return create_matrix(
            self.path,
            line_graph(COLUMNS),
            MatrixSpec(dtype, UNREACHABLE[dtype], sources=np.arange(ROWS) * 7, compression=self.compression),
        )

    def finish(self, sink):
        sink.seal({})
        with open_matrix(self.path) as matrix:
            return matrix.rows(np.arange(ROWS) * 7)


class TestCompressedMatrixWriter(TestMatrixWriter):
    compression = "zstd"
