"""Tables as text."""

from __future__ import annotations

Lines = list[dict[str, object]]


def table(name: str, rows: Lines) -> str:
    """The rows under their names, each column as wide as it has to be."""
    if not rows:
        return f"no {name}"
    cells = [[key.replace("_", " ") for key in rows[0]], *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return f"{name}\n" + "\n".join(f"  {line}" for line in lines)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)
