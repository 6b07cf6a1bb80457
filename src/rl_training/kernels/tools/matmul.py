"""Matrix products of a few rows in compiled code: tiles of rows and columns whose sums stay in vector registers.

Every output is summed in the order of the inputs, whatever tile it falls into: a row's answer does not depend on how
many rows there are. The compiler does not find such tiles by itself, so that their instructions are written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled

ROWS, VECTORS, LANES = 4, 4, 16
COLUMNS = VECTORS * LANES  # of a wide tile; a narrow one has one vector
INT, LANE = ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
FLOAT_BYTES = 4


def tile(rows: int, vectors: int, *, adds: bool = False) -> Any:
    """A compiled (x, weight, out, row, column): `rows` × `vectors` of x · weight into `out`, from there on.

    With `adds` it is xᵀ · weight, and is added to what is there.
    """

    @intrinsic
    def write_tile(_: Any, x: Any, weight: Any, out: Any, row: Any, column: Any) -> Any:
        if any(array.layout != "C" or array.dtype != types.float32 for array in (x, weight, out)):
            raise TypingError("a tile is of contiguous arrays of float32")

        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            typed = zip(signature.args[:3], values[:3], strict=True)
            arrays = [context.make_array(kind)(context, builder, value) for kind, value in typed]
            emit_tile(builder, rows, vectors, *arrays, *values[3:], adds=adds)
            return context.get_dummy_value()

        return types.void(x, weight, out, row, column), emit

    return write_tile


def emit_tile(
    builder: Any, rows: int, vectors: int, x: Any, weight: Any, out: Any, row: Any, column: Any, *, adds: bool
) -> None:
    (height, inputs), (_, width) = (cgutils.unpack_tuple(builder, array.shape, 2) for array in (x, out))
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    nothing, first = ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.VectorType(LANE, LANES), None)
    lines = [builder.add(row, INT(r)) for r in range(rows)]

    def places(array: Any, line: Any) -> list[Any]:
        """Where the columns of the tile are in a row."""
        start = builder.add(builder.mul(line, width), column)
        numbers = [builder.gep(array.data, [builder.add(start, INT(k * LANES))]) for k in range(vectors)]
        return [builder.bitcast(number, VECTOR.as_pointer()) for number in numbers]

    def total(place: Any) -> Any:
        before = builder.load(place, align=FLOAT_BYTES) if adds else ir.Constant(VECTOR, None)
        return cgutils.alloca_once_value(builder, before)

    sums = [[total(place) for place in places(out, line)] for line in lines]
    with cgutils.for_range(builder, height if adds else inputs) as loop:
        factors = [builder.load(place, align=FLOAT_BYTES) for place in places(weight, loop.index)]
        for line, totals in zip(lines, sums, strict=True):
            row_of_x, column_of_x = (loop.index, line) if adds else (line, loop.index)
            number = builder.load(builder.gep(x.data, [builder.add(builder.mul(row_of_x, inputs), column_of_x)]))
            number = builder.shuffle_vector(builder.insert_element(nothing, number, LANE(0)), nothing, first)
            for factor, own in zip(factors, totals, strict=True):
                builder.store(builder.call(multiply_add, [number, factor, builder.load(own)]), own)
    for line, totals in zip(lines, sums, strict=True):
        for place, own in zip(places(out, line), totals, strict=True):
            builder.store(builder.load(own), place, align=FLOAT_BYTES)


several_rows, one_row = tile(ROWS, VECTORS), tile(1, VECTORS)
several_narrow, one_narrow = tile(ROWS, 1), tile(1, 1)
several_added, one_added = tile(ROWS, VECTORS, adds=True), tile(1, VECTORS, adds=True)
several_narrow_added, one_narrow_added = tile(ROWS, 1, adds=True), tile(1, 1, adds=True)


@compiled
def matmul(x: Floats, weight: Floats, out: Floats) -> None:
    """out = x · weight[:I] of contiguous `[R, I]` and `[≥ I, O]`."""
    rows, width = out.shape
    tiled = rows - rows % ROWS
    if width < LANES:
        for b in range(rows):
            out[b] = np.float32(0.0)
            for i in range(x.shape[1]):
                for o in range(width):
                    out[b, o] += x[b, i] * weight[i, o]
    elif width < COLUMNS:
        for start in range(0, width, LANES):
            column = min(start, width - LANES)  # the last tile may cover columns of the one before
            for b in range(0, tiled, ROWS):
                several_narrow(x, weight, out, b, column)
            for b in range(tiled, rows):
                one_narrow(x, weight, out, b, column)
    else:
        for start in range(0, width, COLUMNS):
            column = min(start, width - COLUMNS)
            for b in range(0, tiled, ROWS):
                several_rows(x, weight, out, b, column)
            for b in range(tiled, rows):
                one_row(x, weight, out, b, column)


@compiled
def add_columns_product(x: Floats, y: Floats, out: Floats) -> None:
    """out += xᵀ · y of contiguous `[R, I]` and `[R, O]`."""
    inputs, width = out.shape
    tiled, wide, narrow = inputs - inputs % ROWS, width - width % COLUMNS, width - width % LANES
    for column in range(0, wide, COLUMNS):
        for i in range(0, tiled, ROWS):
            several_added(x, y, out, i, column)
        for i in range(tiled, inputs):
            one_added(x, y, out, i, column)
    for column in range(wide, narrow, LANES):
        for i in range(0, tiled, ROWS):
            several_narrow_added(x, y, out, i, column)
        for i in range(tiled, inputs):
            one_narrow_added(x, y, out, i, column)
    if narrow < width:
        for r in range(len(x)):
            for i in range(inputs):
                for o in range(narrow, width):
                    out[i, o] += x[r, i] * y[r, o]
