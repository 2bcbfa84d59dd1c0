"""A chart of curves as SVG, both axes logarithmic, a legend beside it; of the standard library alone, so that it can be drawn wherever
something is measured."""

import dataclasses
import math
from xml.sax.saxutils import escape

LEFT, TOP, WIDTH, HEIGHT, LEGEND = 60, 50, 640, 460, 470
COLORS = ("#0b5fa5", "#c8500f", "#2c8a3d", "#8a3fa0", "#a8243b", "#5c5c00", "#007a7a", "#6d4a2f",
          "#e377c2", "#17becf", "#bcbd22", "#3f3fbf", "#ff9f1c", "#7fb069", "#b07aa1", "#4e4e4e")


@dataclasses.dataclass
class Curve:
    label: str
    points: list  # (x, y), x ascending; all above 0.
    band: list = dataclasses.field(default_factory=list)  # (low, high) of each point; empty: none.
    color: str = ""  # Empty: the next one.
    width: float = 1.0  # 0: points without a line.
    dashes: str = ""  # As SVG's stroke-dasharray.


def ticks(low, high, base):
    """Powers of `base`, and for 10 also 2 and 5 times them, that lie in the range."""
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    factors = (1, 2, 5) if base == 10 else (1,)
    return [factor * base ** power for power in range(first, last + 1) for factor in factors
            if low * 0.999 <= factor * base ** power <= high * 1.001]


def text(x, y, words, anchor="start", size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{escape(words)}</text>'


def lines_of(curve, color, place):
    """The curve's own elements."""
    at = [place(x, y) for x, y in curve.points]
    parts = []
    if curve.band:
        edge = [place(x, high) for (x, _), (_, high) in zip(curve.points, curve.band)]
        edge += [place(x, low) for (x, _), (low, _) in reversed(list(zip(curve.points, curve.band)))]
        parts.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in edge)}" fill="{color}" opacity="0.2"/>')
    if curve.width and len(at) > 1:
        dashes = f' stroke-dasharray="{curve.dashes}"' if curve.dashes else ""
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in at)}" fill="none" stroke="{color}" '
                     f'stroke-width="{curve.width}"{dashes}/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2.2 if curve.width else 3.2}" fill="{color}"/>' for x, y in at]
    return parts


def chart(curves, title, x_label, y_label):
    """The SVG's text. `title` may have several lines. At least one curve with a point."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    x_low, x_high, y_low, y_high = min(xs) / 1.2, max(xs) * 1.2, min(ys) / 1.2, max(ys) * 1.2

    def place(x, y):
        return (LEFT + WIDTH * math.log(x / x_low) / math.log(x_high / x_low),
                TOP + HEIGHT * (1 - math.log(y / y_low) / math.log(y_high / y_low)))

    bottom, right = TOP + HEIGHT, LEFT + WIDTH
    total_height = max(bottom + 45, TOP + 20 * len(curves) + 10)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + LEGEND}" height="{total_height}" font-family="sans-serif">',
             f'<rect width="{right + LEGEND}" height="{total_height}" fill="white"/>']
    parts += [text(LEFT, 16 + 14 * i, line, size=10) for i, line in enumerate(title.split("\n"))]
    for x in ticks(x_low, x_high, 2):
        at, _ = place(x, y_low)
        parts += [f'<path d="M{at:.1f} {TOP}V{bottom}" stroke="#ddd"/>', text(at, bottom + 16, f"{x:g}", "middle")]
    for y in ticks(y_low, y_high, 10):
        _, at = place(x_low, y)
        parts += [f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#ddd"/>', text(LEFT - 6, at + 4, f"{y:g}", "end")]
    parts.append(f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>')
    parts.append(text(LEFT + WIDTH / 2, bottom + 36, x_label, "middle"))
    middle = TOP + HEIGHT / 2
    parts.append(text(14, middle, y_label, "middle", more=f' transform="rotate(-90 14 {middle})"'))
    number = 0
    for i, curve in enumerate(curves):
        color = curve.color or COLORS[number % len(COLORS)]
        number += 0 if curve.color else 1
        parts += lines_of(curve, color, place)
        y = TOP + 10 + 20 * i
        parts += lines_of(dataclasses.replace(curve, points=[(0, 0), (1, 0)], band=[]), color,
                          lambda x, _, y=y: (right + 14 + 22 * x, y))
        parts.append(text(right + 44, y + 4, curve.label))
    return "\n".join(parts + ["</svg>", ""])
