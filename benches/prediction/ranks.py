#!/usr/bin/env python3
"""Several ranks on this computer, simulated beside measured: in one process, and as processes at one barrier.

    cargo build --release
    python3 benches/prediction/ranks.py [--ranks 2,4,8] [--epochs 2]

In one process they share a pool of a thread for each core. As processes, each has a pool of one thread, a loader and a train step of its own,
takes `RANK` and `WORLD_SIZE` from the environment, and meets the others over TCP after every step; the simulation that stands beside them
has as many threads as there are processes. Each is run at the speed of the loaders, and with a step that asks for six tenths of that.

Before that, a traced run of each says whether every rank did as many steps, no image was read by two ranks, and all were read.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile

BATCH, IMAGES = 32, 400


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towtank", default="target/release/towtank")
    parser.add_argument("--ranks", default="2,4,8", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


def command(o, verb, sets, *more):
    sets = {"loader.epochs": o.epochs, "loader.tail": "pad", "expect.peak_bytes_in_flight.max": "4 GiB", **sets}
    words = [word for path, value in sets.items() for word in ("--set", f"{path}={value}")]
    return [o.towtank, verb, "quickstart", "--json", *words, *more]


def told(words, process):
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {process.returncode}\n{err}")
    return json.loads(out)


def start(words, env=None):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})


def report(words):
    return told(words, start(words))


def as_processes(o, count, sets, more=lambda rank: ()):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [command(o, "run", {"loader.threads": 1, **sets}, *more(rank)) for rank in range(count)]
    started = [start(w, {**job, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank, w in enumerate(words)]
    return [told(*one)["measured"] for one in zip(words, started)]


def images_of(trace):
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    return [e["args"]["sample"] for e in events if e.get("ph") == "X" and e.get("name") == "fetch"]


def check(o, count):
    """Equal steps, disjoint, complete; in one process, and as processes."""
    once = {"loader.epochs": 1, "consumer.step": "0 ms"}
    with tempfile.TemporaryDirectory() as folder:
        # Each process puts its rank into the name.
        trace = lambda name: os.path.join(folder, f"{name}.json")
        one = report(command(o, "run", once, "--ranks", str(count), "--trace", trace("one")))["measured"]
        several = as_processes(o, count, once, lambda rank: ("--trace", trace("each")))
        of_ranks = [image for rank in range(count) for image in images_of(trace(f"each.rank{rank}"))]
        read = {"one process": images_of(trace("one")), "processes": of_ranks}
    steps = {
        "one process": [rank["steps"] for rank in one["ranks"]],
        "processes": [process["ranks"][0]["steps"] for process in several],
    }
    for name, images in read.items():
        equal = len(set(steps[name])) == 1 and len(steps[name]) == count
        disjoint = len(images) == len(set(images))
        whole = set(images) == set(range(IMAGES))
        print(f"{count} ranks, {name}: {steps[name]} steps, equal: {equal}, disjoint: {disjoint}, complete: {whole}", file=sys.stderr)
        if not (equal and disjoint and whole):
            sys.exit("the ranks do not share the epoch")


def line(count, how, step, simulated, per_s, busy, steps):
    predicted, au = simulated["samples_per_s"], simulated["accelerator_utilization"]
    equal = f"{steps[0]} each" if len(set(steps)) == 1 else "not equal"
    print(
        f"| {count} | {how} | {step} | {predicted:.0f} | {per_s:.0f} | {predicted / per_s - 1:+.1%} | {au:.1%}, {busy:.1%} | {equal} |",
        flush=True,
    )


def main():
    o = options()
    # It calibrates this computer, if nobody has.
    supply = report(command(o, "compare", {"consumer.step": "0 ms"}, "--intervals", "0"))["measured"]["samples_per_s"]
    for count in o.ranks:
        check(o, count)
    print(f"one rank alone: {supply:.0f} samples/s\n")
    print("| ranks | how | step | simulated /s | measured /s | error | AU simulated, measured | steps |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for count in o.ranks:
        for step in ("0 ms", f"{count * BATCH / (0.6 * supply) * 1e3:.0f} ms"):
            sets = {"consumer.step": step}
            both = report(command(o, "compare", sets, "--intervals", "0", "--ranks", str(count)))
            m = both["measured"]
            steps = [rank["steps"] for rank in m["ranks"]]
            line(count, "one process", step, both["simulated"], m["samples_per_s"], m["accelerator_utilization"] or 0, steps)
            threads = {"loader.threads": count, "loader.lanes": 4}
            simulated = report(command(o, "sim", {**sets, **threads}, "--ranks", str(count)))["simulated"]
            several = as_processes(o, count, sets)
            # They begin together and end together, so the whole job's rate is that of the last.
            last = max(process["delivered"] / process["samples_per_s"] for process in several)
            per_s = sum(process["delivered"] for process in several) / last
            busy = sum(process["accelerator_utilization"] or 0 for process in several) / count
            steps = [process["ranks"][0]["steps"] for process in several]
            line(count, "processes", step, simulated, per_s, busy, steps)


if __name__ == "__main__":
    main()
