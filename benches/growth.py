"""Simulates `cluster-1000` with 1 to 1 000 ranks, and prints and plots what the simulation takes.

    growth.py --towtank BINARY [--rounds 3] [--svg docs/growth.svg]

For each number of ranks the median of the rounds' processor time and peak resident memory, with 64 and with 256 samples a rank. Rounds go
over all sizes in turn, so that a slow minute falls on all of them. A program that needs less memory than this script is told to need as
much as the script, since the system counts from the start of the process.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys

RANKS = [1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000]
SAMPLES = [64, 256]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towtank", required=True, help="the program, built with --release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--svg", help="write the plot there")
    options = parser.parse_args()
    taken = {(ranks, samples): [] for samples in SAMPLES for ranks in RANKS}
    for _ in range(options.rounds):
        for (ranks, samples), runs in taken.items():
            runs.append(simulate(options.towtank, ranks, samples))
    middle = {key: tuple(statistics.median(run[i] for run in runs) for i in (0, 1)) for key, runs in taken.items()}
    print("| ranks | nodes | " + " | ".join(f"{n} samples a rank" for n in SAMPLES) + " | a sample |")
    print("| --- | --- |" + " --- |" * (len(SAMPLES) + 1))
    for ranks in RANKS:
        cells = [f"{s:.2f} s, {b / 1e6:.0f} MB" if s >= 0.005 else f"< 0.01 s, {b / 1e6:.0f} MB" for s, b in (middle[ranks, n] for n in SAMPLES)]
        each = (middle[ranks, SAMPLES[1]][0] - middle[ranks, SAMPLES[0]][0]) / (ranks * (SAMPLES[1] - SAMPLES[0])) * 1e6
        print(f"| {ranks} | {math.ceil(ranks / 8)} | " + " | ".join(cells) + (f" | {each:.1f} µs |" if ranks >= 16 else " | |"))
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(plot(middle))


def simulate(towtank, ranks, samples):
    """Processor seconds and peak resident bytes."""
    sets = [f"ranks.count={ranks}", f"ranks.per_node={min(8, ranks)}", f"dataset.count={ranks * samples}"]
    if ranks == 1:
        sets.append("ranks.barrier=false")
    args = [towtank, "sim", "cluster-1000", "--json"] + [word for one in sets for word in ("--set", one)]
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    # 1 says that an expectation of the thousand ranks does not hold for fewer.
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{' '.join(args)}\n{error}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def plot(middle):
    """Two log-log panels, readable on light and dark ground."""
    width, height, gap = 360, 240, 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * (width + gap) + 20} {height + 80}" font-family="sans-serif" font-size="11">',
        "<style>text{fill:#555}.axis{stroke:#999;stroke-width:.5}.a{stroke:#2a7de1;fill:none;stroke-width:2}.b{stroke:#e08a1e;fill:none;"
        "stroke-width:2}.l{stroke:#999;stroke-dasharray:3 3;fill:none}@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>",
    ]
    panels = [("processor time [s]", 0, 1e-3, 1e1), ("peak resident memory [MB]", 1, 1e0, 1e3)]
    for place, (title, figure, low, high) in enumerate(panels):
        left = gap + place * (width + gap)
        x = lambda ranks: left + math.log(ranks) / math.log(1000) * width
        y = lambda value: 30 + (1 - math.log(max(value, low) / low) / math.log(high / low)) * height
        parts.append(f'<text x="{left}" y="18" font-size="13">{title}</text>')
        for ranks in (1, 10, 100, 1000):
            parts.append(f'<path class="axis" d="M{x(ranks):.1f} 30V{30 + height}"/><text x="{x(ranks):.1f}" y="{height + 46}" text-anchor="middle">{ranks}</text>')
        tick = low
        while tick <= high * 1.01:
            parts.append(f'<path class="axis" d="M{left} {y(tick):.1f}h{width}"/><text x="{left - 5}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
            tick *= 10
        scale = 1e-6 if figure else 1.0
        for samples, style in zip(SAMPLES, "ab"):
            points = " ".join(f"{x(ranks):.1f},{y(middle[ranks, samples][figure] * scale):.1f}" for ranks in RANKS)
            parts.append(f'<polyline class="{style}" points="{points}"/>')
            last = middle[RANKS[-1], samples][figure] * scale
            parts.append(f'<text x="{x(1000) - 4:.1f}" y="{y(last) + (14 if samples == min(SAMPLES) else -6):.1f}" text-anchor="end">{samples} samples a rank</text>')
        if figure == 0:
            end = middle[RANKS[-1], SAMPLES[-1]][0]
            parts.append(f'<path class="l" d="M{x(max(1, 1000 * low / end)):.1f} {y(low):.1f}L{x(1000):.1f} {y(end):.1f}"/>')
        parts.append(f'<text x="{left + width / 2}" y="{height + 64}" text-anchor="middle">ranks{", and a straight proportion (dashed)" if figure == 0 else ""}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
