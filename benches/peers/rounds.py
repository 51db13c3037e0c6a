"""Runs loaders against each other in interleaved rounds and prints medians and ratios.

    rounds.py --data FOLDER [--rounds 10] NAME='COMMAND' NAME='COMMAND' ...

Every command gets `--data --batch --workers --epochs --dump` appended and prints one JSON line, as README.md defines it. The first
name is the base of the ratios. In each round every command runs once, one after the other; the order turns by one place from round
to round and is reversed in every second one, so that no loader always runs behind the same other. A ratio is formed within a round
and its median and quartiles are taken over the rounds: what slows a whole round cancels.
"""

import argparse
import ast
import json
import operator
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time


def main():
    options = parse()
    names = list(options.commands)
    results = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as dumps, open(options.out, "a") if options.out else open(os.devnull, "w") as out:
        for number in range(options.rounds):
            for name in order_of(names, number):
                dump = os.path.join(dumps, name + ".npy") if number == 0 else None
                line = run(name, options, dump)
                results[name].append(line)
                out.write(json.dumps(dict(line, name=name, round=number)) + "\n")
                out.flush()
                talk(f"round {number + 1}/{options.rounds} {name}: {line['img_s']} img/s, {line['cpu_s_per_1k']} CPU s/1000, "
                     f"others used {line['other_cores']} cores")
        print_medians(names, results)
        print_ratios(names, results)
        print_pixels(names, dumps)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--data", required=True, help="folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--timeout-s", type=float, default=600, help="limit of one run")
    parser.add_argument("--out", help="append every line, with its name and round, to this file")
    options = parser.parse_args()
    pairs = [command.partition("=") for command in options.commands]
    if any(not separator or not name or not command for name, separator, command in pairs):
        parser.error("give every loader as NAME=COMMAND")
    options.commands = {name: shlex.split(command) for name, _, command in pairs}
    if len(options.commands) != len(pairs):
        parser.error("two loaders have the same name")
    return options


def order_of(names, number):
    turned = names[number % len(names):] + names[: number % len(names)]
    return turned if number % 2 == 0 else turned[::-1]


def run(name, options, dump):
    """One run: the JSON line of the command, with the cores that everything else on this computer used meanwhile."""
    flags = [f"--{flag}={getattr(options, flag)}" for flag in ("data", "batch", "workers", "epochs")]
    command = options.commands[name] + flags + ([f"--dump={dump}"] if dump else [])
    busy, own, started = busy_s(), children_s(), time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"{name}: {error}")
    wall_s = time.monotonic() - started
    line = last_json(done.stdout)
    if done.returncode != 0 or line is None:
        raise SystemExit(f"{name}: `{shlex.join(command)}` ended with {done.returncode} and no result\n{done.stderr[-2000:]}")
    others = (busy_s() - busy) - (children_s() - own)
    return dict(line, other_cores=round(max(0.0, others) / wall_s, 2))


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def busy_s():
    """CPU time that this computer has spent on anything but idling and waiting for disks."""
    with open("/proc/stat") as file:
        fields = list(map(int, file.readline().split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3


def print_medians(names, results):
    print(f"\n{'loader':<12} {'img/s':>9} {'quartiles':>17} {'CPU s/1000':>11} {'first batch s':>14} {'mean':>8}  version")
    for name in names:
        low, middle, high = quartiles([line["img_s"] for line in results[name]])
        cpu, first = (statistics.median(line[key] for line in results[name]) for key in ("cpu_s_per_1k", "first_batch_s"))
        last = results[name][-1]
        print(f"{name:<12} {middle:>9.1f} {low:>8.1f}–{high:<8.1f} {cpu:>11.3f} {first:>14.3f} {last['mean']:>8.3f}  {last['version']}")


def print_ratios(names, results):
    base = names[0]
    for key, what in (("img_s", "throughput"), ("cpu_s_per_1k", "CPU per image")):
        print(f"\n{what}: {base} over each other loader, median of the rounds' ratios (quartiles)")
        for name in names[1:]:
            ratios = [a[key] / b[key] for a, b in zip(results[base], results[name])]
            low, middle, high = quartiles(ratios)
            print(f"{base} / {name:<12} {middle:>7.3f}  ({low:.3f}–{high:.3f})")


def print_pixels(names, dumps):
    """How far the first batches differ, in levels of 255, from that of the base."""
    base = read_npy(os.path.join(dumps, names[0] + ".npy"))
    print(f"\nfirst batch: levels of 255 by which it differs from {names[0]}'s")
    for name in names[1:]:
        other = read_npy(os.path.join(dumps, name + ".npy"))
        if base is None or other is None or len(base) != len(other):
            print(f"{name:<12} not comparable: {'no dump' if base is None or other is None else 'another size'}")
            continue
        differences = list(map(abs, map(operator.sub, base, other)))
        print(f"{name:<12} mean {sum(differences) / len(differences):.3f}, largest {max(differences)}")


def read_npy(path):
    """The bytes of a u8 array in C order; without numpy, so that this script runs under any Python."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    if data[:6] != b"\x93NUMPY":
        raise SystemExit(f"{path} is not an .npy file")
    width = 2 if data[6] == 1 else 4
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    header = ast.literal_eval(data[8 + width : start].decode("latin-1"))
    if header["descr"] not in ("|u1", "<u1", "u1") or header["fortran_order"]:
        raise SystemExit(f"{path} holds {header}, not u8 in C order")
    return data[start:]


def talk(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
