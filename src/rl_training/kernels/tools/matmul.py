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
COLUMNS = VECTORS * LANES
INT, LANE = ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
FLOAT_BYTES = 4


def tile(rows: int) -> Any:
    """A compiled (x, weight, out, row, column): `rows` × COLUMNS of x · weight into `out`, from there on."""

    @intrinsic
    def write_tile(_: Any, x: Any, weight: Any, out: Any, row: Any, column: Any) -> Any:
        if any(array.layout != "C" or array.dtype != types.float32 for array in (x, weight, out)):
            raise TypingError("a tile is of contiguous arrays of float32")

        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            typed = zip(signature.args[:3], values[:3], strict=True)
            arrays = [context.make_array(kind)(context, builder, value) for kind, value in typed]
            emit_tile(builder, rows, *arrays, *values[3:])
            return context.get_dummy_value()

        return types.void(x, weight, out, row, column), emit

    return write_tile


def emit_tile(builder: Any, rows: int, x: Any, weight: Any, out: Any, row: Any, column: Any) -> None:
    (_, inputs), (_, width) = (cgutils.unpack_tuple(builder, array.shape, 2) for array in (x, out))
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    nothing, first = ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.VectorType(LANE, LANES), None)
    lines = [builder.add(row, INT(r)) for r in range(rows)]
    sums = [[cgutils.alloca_once_value(builder, ir.Constant(VECTOR, None)) for _ in range(VECTORS)] for _ in lines]

    def vectors(array: Any, line: Any) -> list[Any]:
        """Where the columns of the tile are in a row."""
        start = builder.add(builder.mul(line, width), column)
        places = [builder.gep(array.data, [builder.add(start, INT(k * LANES))]) for k in range(VECTORS)]
        return [builder.bitcast(place, VECTOR.as_pointer()) for place in places]

    with cgutils.for_range(builder, inputs) as loop:
        factors = [builder.load(place, align=FLOAT_BYTES) for place in vectors(weight, loop.index)]
        for line, totals in zip(lines, sums, strict=True):
            number = builder.load(builder.gep(x.data, [builder.add(builder.mul(line, inputs), loop.index)]))
            number = builder.shuffle_vector(builder.insert_element(nothing, number, LANE(0)), nothing, first)
            for factor, total in zip(factors, totals, strict=True):
                builder.store(builder.call(multiply_add, [number, factor, builder.load(total)]), total)
    for line, totals in zip(lines, sums, strict=True):
        for place, total in zip(vectors(out, line), totals, strict=True):
            builder.store(builder.load(total), place, align=FLOAT_BYTES)


several_rows, one_row = tile(ROWS), tile(1)


@compiled
def matmul(x: Floats, weight: Floats, out: Floats) -> None:
    """out = x · weight[:I] of contiguous `[R, I]` and `[≥ I, O]`."""
    rows, width = out.shape
    if width < COLUMNS:
        for b in range(rows):
            out[b] = np.float32(0.0)
            for i in range(x.shape[1]):
                for o in range(width):
                    out[b, o] += x[b, i] * weight[i, o]
        return
    tiled = rows - rows % ROWS
    for start in range(0, width, COLUMNS):
        column = min(start, width - COLUMNS)  # the last tile may cover columns of the one before
        for b in range(0, tiled, ROWS):
            several_rows(x, weight, out, b, column)
        for b in range(tiled, rows):
            one_row(x, weight, out, b, column)
