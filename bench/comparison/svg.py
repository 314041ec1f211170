"""A small logarithmic plot as SVG: points, a line of the expected slope, readable on light and dark pages."""

import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 280, 56, 12, 30, 40
COLOURS = ("#3b74c4", "#c8642b", "#3f8f5b")


def ticks(low, high):
    """Powers of ten, of two where those are too few, else the ends."""
    for base in (10, 2):
        first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
        if last - first >= 1:
            return [base ** e for e in range(first, last + 1)]
    return [low, high]


def label(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def plot(title, x_name, y_name, series):
    """`series`: [(name, [(x, y)], dashed)]; a dashed one has a line and no points."""
    points = [p for _, values, _ in series for p in values]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = min(y for _, y in points) / 1.3, max(y for _, y in points) * 1.3
    scale = lambda v, low, high: (math.log(v) - math.log(low)) / (math.log(high) - math.log(low))
    at_x = lambda x: LEFT + 8 + scale(x, low_x, high_x) * (WIDTH - LEFT - RIGHT - 16)
    at_y = lambda y: HEIGHT - BOTTOM - scale(y, low_y, high_y) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><text x="{LEFT}" y="18" font-size="13" fill="#222">{title}</text>']
    for x in sorted({x for x, _ in points}) if len({x for x, _ in points}) <= 8 else ticks(low_x, high_x):
        out.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle" fill="#555">{label(x)}</text>')
    for y in ticks(low_y, high_y):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 5}" y="{at_y(y) + 4:.1f}" text-anchor="end" fill="#555">{label(y)}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle" fill="#333">{x_name}</text><text x="{WIDTH - RIGHT}" y="18" text-anchor="end" fill="#333">{y_name}</text>')
    dashes = ' stroke-dasharray="4 3"'
    for i, (name, values, dashed) in enumerate(series):
        colour, path = COLOURS[i % len(COLOURS)], " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in values)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes if dashed else ""}/>')
        if not dashed:
            out += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>' for x, y in values]
        out.append(f'<text x="{LEFT + 10}" y="{TOP + 14 + 14 * i}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
