#!/usr/bin/env python3
"""How good predictions are where nobody looked before: settings of real runs, each predicted and frozen before it is run.

    cargo build --release
    python3 benches/prediction/held_out.py [--rounds 3] [--only NAME] [--out FILE]

This computer is calibrated once, on images of its own. In every round and in an order that changes, every setting is predicted, the
prediction frozen (`towtank sim --freeze`), run and judged (`towtank compare --frozen`). Nothing is fitted to any of them. A run
during which other processes took processors away is made again, with a prediction of its own. Printed for each,
as the median of the rounds: what was predicted and measured, the error, where it comes from (costs, structure), the error of the plain
bound (the least of the operational laws' limits), and how often the measured figure lay within the prediction's 90 % interval.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

JITTER = (
    "{ quantiles = [{ at = '0 %', value = '4 ms' }, { at = '50 %', value = '6 ms' }, { at = '90 %', value = '15 ms' }, "
    "{ at = '99 %', value = '40 ms' }, { at = '100 %', value = '80 ms' }] }"
)
WAITS = {"store.kind": "emulated"}

SETTINGS = {
    "1 thread": {"loader.threads": 1},
    "2 threads": {"loader.threads": 2},
    "3 threads": {"loader.threads": 3},
    "4 threads": {"loader.threads": 4},
    "2 lanes": {"loader.lanes": 2},
    "ring of 32, one batch": {"loader.ring": 32, "loader.prefetch": 1},
    "budget near the minimum": {"loader.ring": 64, "loader.prefetch": 1, "loader.budget": "40 MiB"},
    "completion order": {"loader.order": "completion"},
    "batches of 8": {"loader.batch": 8, "consumer.step": "2 ms"},
    "step near supply": {"consumer.step": "22 ms"},
    "step beyond supply": {"consumer.step": "30 ms"},
    "step of 30 ms, 1 thread": {"loader.threads": 1, "consumer.step": "30 ms"},
    "cold reads": {"store.kind": "disk", "loader.epochs": 1},
    "cold reads, 4 lanes": {"store.kind": "disk", "loader.epochs": 1, "loader.lanes": 4},
    "10 ms a read": {**WAITS, "store.first_byte": "10 ms"},
    "40 ms a read, 16 lanes": {**WAITS, "store.first_byte": "40 ms", "loader.lanes": 16},
    "jitter, 16 lanes": {**WAITS, "store.first_byte": JITTER, "loader.lanes": 16},
    "jitter, 8 lanes, completion": {**WAITS, "store.first_byte": JITTER, "loader.lanes": 8, "loader.order": "completion"},
    "5 MB/s on 8 connections": {**WAITS, "store.first_byte": "5 ms", "store.per_connection": "5 MB/s", "store.connections": 8},
    "link of 150 MB/s": {"consumer.link": "150 MB/s"},
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towtank", default="target/release/towtank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="one setting")
    parser.add_argument("--out", help="keeps every report, a line of JSON each")
    return parser.parse_args()


def towtank(o, *words):
    done = subprocess.run([o.towtank, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"towtank {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def judged(o, sets, folder):
    frozen = os.path.join(folder, "frozen.json")
    sets = {"consumer.step": "10 ms", "loader.epochs": 3, **sets}
    words = [word for path, value in sets.items() for word in ("--set", f"{path}={value}")]
    towtank(o, "sim", "quickstart", "--freeze", frozen, "--json", *words)
    return json.loads(towtank(o, "compare", "--frozen", frozen, "--json"))


def undisturbed(judge, tries=4):
    """The first of some tries during which nobody else used the processors; else the last."""
    for _ in range(tries):
        report = judge()
        if not report["measured"].get("taken_by_others"):
            return report
        print("disturbed by another process, so once more", file=sys.stderr)
    return report


def main():
    o = options()
    settings = {name: sets for name, sets in SETTINGS.items() if o.only in (None, name)}
    towtank(o, "calibrate", "--json")
    reports = {name: [] for name in settings}
    out = open(o.out, "w") if o.out else None
    with tempfile.TemporaryDirectory() as folder:
        for number in range(o.rounds):
            names = list(settings)
            random.Random(number).shuffle(names)
            for name in names:
                report = undisturbed(lambda: judged(o, settings[name], folder))
                reports[name].append(report)
                if out:
                    print(json.dumps({"round": number, "setting": name, **report}), file=out, flush=True)
    print("| setting | predicted | measured /s | error | of costs | of structure | bound's error | within | AU error | CPU error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors, bounds, within, runs = [], [], 0, 0
    for name, rounds in reports.items():
        of = lambda *keys: [figure(r, keys) for r in rounds]
        middle = lambda values: statistics.median([v for v in values if v is not None])
        error, bound = middle(of("errors", "samples_per_s")), middle(of("errors", "bound_samples_per_s"))
        holds = [
            i["low"] <= m <= i["high"] for i, m in zip(of("intervals", "samples_per_s"), of("measured", "samples_per_s"))
        ]
        errors.append(abs(error))
        bounds.append(abs(bound))
        within, runs = within + sum(holds), runs + len(holds)
        print(
            f"| {name} | {middle(of('simulated', 'samples_per_s')):.0f} | {middle(of('measured', 'samples_per_s')):.0f} | {error:+.1%} "
            f"| {middle(of('errors', 'cost_model', 'samples_per_s')):+.1%} | {middle(of('errors', 'structure', 'samples_per_s')):+.1%} "
            f"| {bound:+.1%} | {sum(holds)} of {len(holds)} | {100 * middle(of('errors', 'accelerator_utilization')):+.1f} points "
            f"| {middle(of('errors', 'cpu_s')):+.1%} |"
        )
    better = [e < b for e, b in zip(errors, bounds) if b > 0.05]
    print(
        f"\nerror: mean {statistics.mean(errors):.1%}, largest {max(errors):.1%}; of the bound: mean {statistics.mean(bounds):.1%}, largest "
        f"{max(bounds):.1%}; better than the bound in {sum(better)} of the {len(better)} settings where that is off by more than 5 %; "
        f"{within} of {runs} runs within their interval"
    )


def figure(report, keys):
    for key in keys:
        report = report.get(key) if report else None
    return report


if __name__ == "__main__":
    main()
