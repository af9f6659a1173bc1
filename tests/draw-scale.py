#!/usr/bin/env python3
"""Draws the curves of docs/scale.md from what `rackwright-bench fleet` printed for several numbers of nodes.

Usage: draw-scale.py FIGURES.jsonl OUTPUT.svg
One line for each phase: CPU milliseconds of the control plane for a node, over the number of nodes (both logarithmic).
"""

import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 360, 56, 44, 16, 96
COLOURS = {"enrol": "#7a7a7a", "inspect": "#1f77b4", "deploy": "#d62728", "release": "#2ca02c", "total": "#000000"}


def main(figures, output):
    curves = {}
    for line in open(figures, encoding="utf-8"):
        phase = json.loads(line)
        if phase["phase"] in COLOURS and phase.get("control_cpu_ms_per_node"):
            point = (phase["nodes"], phase["control_cpu_ms_per_node"])
            curves.setdefault(phase["phase"], []).append(point)
    points = [point for curve in curves.values() for point in curve]
    decades = lambda values: (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))))
    (x0, x1), (y0, y1) = decades([n for n, _ in points]), decades([ms for _, ms in points])
    across = lambda n: LEFT + (math.log10(n) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
    down = lambda ms: HEIGHT - BOTTOM - (math.log10(ms) - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">nodes at once; ms of CPU for a node, control plane and database</text>',
    ]
    for x in range(x0, x1 + 1):
        at = across(10**x)
        out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10**x:,}</text>')
    for y in range(y0, y1 + 1):
        at = down(10**y)
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10**y:g}</text>')
    for phase, curve in curves.items():
        curve.sort()
        path = " ".join(f"{across(n):.1f},{down(ms):.1f}" for n, ms in curve)
        colour = COLOURS[phase]
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.extend(f'<circle cx="{across(n):.1f}" cy="{down(ms):.1f}" r="3" fill="{colour}"/>' for n, ms in curve)
    # From the lowest name on, each at least a line above the one below it.
    below = float("inf")
    for phase, (n, ms) in sorted(((phase, curve[-1]) for phase, curve in curves.items()), key=lambda end: end[1][1]):
        below = min(down(ms) + 4, below - 13)
        out.append(f'<text x="{across(n) + 8:.1f}" y="{below:.1f}" fill="{COLOURS[phase]}">{phase}</text>')
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>"]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
