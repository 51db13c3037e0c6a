#!/usr/bin/env python3
"""How good predictions are: `towtank compare` over variants of a scenario, in interleaved rounds with a bare loop as control.

    cargo build --release && cargo build --release --bench throughput
    python3 benches/prediction/rounds.py --bare target/release/deps/throughput-HASH [--rounds 10] [--out FILE]

This computer is calibrated once, before the first round; what later changes is its speed, which `compare` probes before each run. Then, in
every round and in an order that changes, every variant is predicted
and run. Printed for each: what was predicted and measured (median of the rounds), the error, the error of the plain bound (the least of
the operational laws' limits), and the spread of the measurements (their interquartile range over their median). The bare loop's spread
says how steady the computer was.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towtank", default="target/release/towtank")
    parser.add_argument("--bare", help="the throughput benchmark's program, for the control")
    parser.add_argument("--scenario", default="quickstart")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", help="keeps every report, a line of JSON each")
    return parser.parse_args()


def compare(o, sets, recalibrate=False):
    sets = {"loader.epochs": o.epochs, **sets}
    command = [o.towtank, "compare", o.scenario, "--json"]
    command += [word for path, value in sets.items() for word in ("--set", f"{path}={value}")]
    command += ["--recalibrate"] if recalibrate else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def bare(o, data):
    done = subprocess.run([o.bare, "--bare", "--data", data, "--epochs", "2"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["img_s"]


def spread(values):
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)


def main():
    o = options()
    first = compare(o, {}, recalibrate=True)
    batch = 32
    supply = statistics.median(compare(o, {})["measured"]["steady_samples_per_s"] for _ in range(7))
    step = lambda demand: f"{batch / (demand * supply) * 1e3:.3f} ms"
    variants = {
        "as it is": {},
        "1 decode thread": {"loader.threads": 1},
        "2 batches of memory": {"loader.prefetch": 1, "loader.ring": 2 * batch, "loader.budget": "40 MiB"},
        "demand 0.9 of supply": {"consumer.step": step(0.9)},
        "demand 1.0 of supply": {"consumer.step": step(1.0)},
        "demand 1.1 of supply": {"consumer.step": step(1.1)},
    }
    reports, control = {name: [] for name in variants}, []
    images = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "towtank")
    folders = [f for f in os.listdir(images) if f.startswith("images-")] if os.path.isdir(images) else []
    out = open(o.out, "w") if o.out else None
    for number in range(o.rounds):
        names = list(variants)
        random.Random(number).shuffle(names)
        if o.bare and folders:
            control.append(bare(o, os.path.join(images, folders[0])))
        for name in names:
            report = compare(o, variants[name])
            reports[name].append(report)
            if out:
                print(json.dumps({"round": number, "variant": name, **report}), file=out, flush=True)
    if control:
        print(f"bare loop: {statistics.median(control):.0f} images/s, spread {spread(control):.1%}\n")
    print(f"machine: {first['simulated']['machine']}; supply {supply:.0f} samples/s; {o.rounds} rounds\n")
    print("| variant | predicted | measured /s | error | bound's error | spread | AU predicted, measured | CPU s error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, rounds in reports.items():
        column = lambda side, key: [r[side][key] for r in rounds]
        predicted, measured = statistics.median(column("simulated", "samples_per_s")), column("measured", "samples_per_s")
        middle = statistics.median(measured)
        limits = [b["samples_per_s"] for b in rounds[0]["simulated"]["bounds"]]
        bound = min(limits) / middle - 1
        au = [statistics.median(column(side, "accelerator_utilization")) for side in ("simulated", "measured")]
        cpu = statistics.median(column("simulated", "cpu_s")) / statistics.median(column("measured", "cpu_s")) - 1
        print(
            f"| {name} | {predicted:.0f} | {middle:.0f} | {predicted / middle - 1:+.1%} | {bound:+.1%} | {spread(measured):.1%} "
            f"| {au[0]:.1%}, {au[1]:.1%} | {cpu:+.1%} |"
        )


if __name__ == "__main__":
    main()
