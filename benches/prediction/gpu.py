#!/usr/bin/env python3
"""Simulations against runs on the driver without a GPU: bound by the transfer, balanced, bound by the step, and by a stage on the device.

    cargo build --release
    benches/prediction/gpu.py --towtank target/release/towtank [--rounds 5]

It builds tests/fake-cuda, and prints the median of the rounds as a Markdown table.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = [
    ("transfer-bound", "100 MB/s", 100_000_000, "1 ms", []),
    ("balanced", "200 MB/s", 200_000_000, "24 ms", []),
    ("decode-bound", "6 GB/s", 6_000_000_000, "1 ms", []),
    ("compute-bound", "6 GB/s", 6_000_000_000, "50 ms", []),
    ("stage-bound", "6 GB/s", 6_000_000_000, "1 ms", ["loader.device_stage=normalize"]),
]
# Normalizing takes 48 ms for a batch.
NORMALIZE = 100_000_000


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--towtank", required=True)
    p.add_argument("--rounds", type=int, default=5)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(HERE, "../../tests/fake-cuda/lib.rs")
        subprocess.run(["rustc", "--edition", "2024", "-O", "--crate-type", "cdylib", "--crate-name", "cuda",
                        "-C", "link-arg=-Wl,-soname,libcuda.so", "-o", os.path.join(folder, "libcuda.so"), source], check=True)
        found = {name: [] for name, *_ in SETTINGS}
        for _ in range(o.rounds):
            for name, _, rate, step, sets in SETTINGS:
                environment = dict(os.environ, LD_LIBRARY_PATH=folder, FAKE_CUDA_BYTES_PER_S=str(rate))
                environment["FAKE_CUDA_NORMALIZE_BYTES_PER_S"] = str(NORMALIZE)
                words = [o.towtank, "compare", "quickstart", "--device", "cuda:0", "--intervals", "0", "--json", "--set", f"consumer.step={step}"]
                words += [word for text in sets for word in ("--set", text)]
                run = subprocess.run(words, env=environment, capture_output=True, text=True)
                if run.returncode not in (0, 1):
                    raise SystemExit(run.stderr)
                report = json.loads(run.stdout)
                found[name].append((report["simulated"], report["measured"]))
        for name, link, _, step, _ in SETTINGS:
            middle = lambda which, key: statistics.median(pair[which][key] for pair in found[name])
            errors = [s["samples_per_s"] / m["samples_per_s"] - 1 for s, m in found[name]]
            busy = [f"{100 * middle(which, 'accelerator_utilization'):.1f} %" for which in (0, 1)]
            print(f"| {name} | {link} | {step} | {middle(0, 'samples_per_s'):.0f} | {middle(1, 'samples_per_s'):.0f} "
                  f"| {100 * statistics.median(errors):+.1f} % | {busy[0]}, {busy[1]} |")


main()
