#!/usr/bin/env python3
"""Draws the curves of docs/placement.md from what `rackwright-bench-placement trace` printed.

Usage: draw-placement.py FIGURES.jsonl OUTPUT.svg
One line for each way of placing: how much of the hall is in use, day by day.
"""

import json
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 52, 44, 16, 130
COLOURS = {"rackwright": "#d62728", "unconstrained": "#7a7a7a", "whole units only": "#1f77b4"}


def main(figures, output):
    curves = {}
    for line in open(figures, encoding="utf-8"):
        told = json.loads(line)
        if told["bench"] == "trace":
            curves.setdefault(told["policy"], []).append((told["day"], 100 * told["utilisation"]))
    if not curves:
        sys.exit(f"{figures}: no line of the bench trace")
    days = max(day for curve in curves.values() for day, _ in curve)
    lowest = min(part for curve in curves.values() for _, part in curve)
    y0, y1 = int(lowest // 5 * 5), 100
    across = lambda day: LEFT + day / days * (WIDTH - LEFT - RIGHT)
    down = lambda part: HEIGHT - BOTTOM - (part - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">day; nodes in use, % of all (dashed: 95 %)</text>',
    ]
    for day in range(0, days + 1, 5):
        out.append(f'<text x="{across(day):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{day}</text>')
    for part in range(y0, y1 + 1, 5):
        at = down(part)
        dashes = ' stroke-dasharray="4 3"' if part == 95 else ""
        colour = "#888888" if part == 95 else "#dddddd"
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="{colour}"{dashes}/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{part}</text>')
    below = float("inf")
    for name, curve in sorted(curves.items(), key=lambda named: named[1][-1][1]):
        path = " ".join(f"{across(day):.1f},{down(part):.1f}" for day, part in sorted(curve))
        colour = COLOURS.get(name, "#000000")
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        # From the lowest name on, each at least a line above the one below it.
        below = min(down(sorted(curve)[-1][1]) + 4, below - 13)
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{below:.1f}" fill="{colour}">{name}</text>')
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>"]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
