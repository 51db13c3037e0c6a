#!/usr/bin/env python3
"""Whether a bottleneck is named, and what relieving it brings: five are planted, predicted, run, relieved and run again.

    cargo build --release
    python3 benches/prediction/planted.py [--rounds 3]

For each, as the median of the rounds: the bottleneck that the simulation and the real run name, the gain that the simulation predicts from
the relief, and the gain that the relief really brings.
"""

import argparse
import json
import statistics
import subprocess
import sys

WAITS = {"store.kind": "emulated"}

# What is planted, what it should be called, and what relieves it.
PLANTED = {
    "store": ("fetch", {**WAITS, "store.first_byte": "30 ms", "store.connections": 8}, {"store.connections": 16}),
    "decode": ("decode", {"loader.threads": 1}, {"loader.threads": 2}),
    "memory": ("memory", {**WAITS, "store.first_byte": "60 ms", "loader.ring": 32, "loader.prefetch": 1}, {"loader.ring": 48}),
    "copy": ("transfer", {"consumer.link": "60 MB/s"}, {"consumer.link": "120 MB/s"}),
    "step": ("consumer", {"consumer.step": "60 ms"}, {"consumer.step": "40 ms"}),
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towtank", default="target/release/towtank")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def compare(o, sets):
    sets = {"consumer.step": "1 ms", "loader.epochs": 2, **sets}
    words = [word for path, value in sets.items() for word in ("--set", f"{path}={value}")]
    for _ in range(4):
        done = subprocess.run([o.towtank, "compare", "quickstart", "--json", "--intervals", "0", *words], capture_output=True, text=True)
        if done.returncode not in (0, 1) or not done.stdout:
            sys.exit(f"{words}: exit {done.returncode}\n{done.stderr}")
        report = json.loads(done.stdout)
        if not report["measured"].get("taken_by_others"):
            break
        print("disturbed by another process, so once more", file=sys.stderr)
    return report


def main():
    o = options()
    compare(o, {})
    print("| planted | should be called | simulated | measured | predicted gain | real gain | apart |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for planted, (name, sets, relief) in PLANTED.items():
        before = [compare(o, sets) for _ in range(o.rounds)]
        after = [compare(o, {**sets, **relief}) for _ in range(o.rounds)]
        middle = lambda reports, side: statistics.median(r[side]["samples_per_s"] for r in reports)
        gains = [middle(after, side) / middle(before, side) - 1 for side in ("simulated", "measured")]
        called = [sorted({r[side]["bottleneck"]["name"] for r in before}) for side in ("simulated", "measured")]
        print(
            f"| {planted} | {name} | {', '.join(called[0])} | {', '.join(called[1])} | {gains[0]:+.0%} | {gains[1]:+.0%} "
            f"| {100 * (gains[0] - gains[1]):+.1f} points |",
            flush=True,
        )


if __name__ == "__main__":
    main()
