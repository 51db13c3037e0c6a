#!/usr/bin/env python3
"""Scores `towtank check` against defects that were planted without looking at it.

Each patch beside this file is applied to a scratch worktree of HEAD, the program is built, and `towtank check` is run over a few
scenarios. The table says which invariant caught the defect, in which scenario and at which seed, or that it was missed. Caught is what
the program itself reports as found; where it crashes or does not end, the table says so, and that counts as missed.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# What is checked, in order: a scenario's name, and what else the command line says.
SCENARIOS = [
    ("quickstart", ["--set", "machine=reference-2core"]),
    ("flaky-store", []),
    ("slow-consumer", []),
    ("tiny-memory", []),
    ("flaky-store", ["--set", "loader.order=completion", "--set", "loader.epochs=3"]),
    ("imagenet-p4d", ["--set", "ranks.count=3"]),
]

FOUND_NOTHING, FOUND, BAD_INPUT = 0, 1, 2


def main():
    options = parse()
    patches = sorted(HERE.glob("[0-9][0-9]-*.patch"))
    if options.only:
        patches = [patch for patch in patches if patch.name.split("-")[0] in options.only]
        unknown = set(options.only) - {patch.name.split("-")[0] for patch in patches}
        if unknown:
            sys.exit(f"there is no patch {', '.join(sorted(unknown))} in {HERE}")
    bench = Bench(options)
    rows = []
    if not options.no_baseline:
        caught, note = bench.score(None)
        rows.append(("baseline", "nothing", caught, note.replace("MISSED", "as it should be, nothing found", 1)))
        show(rows[-1])
        if caught:
            print("the unchanged loader does not pass, so what is caught below may not be the defect", file=sys.stderr)
    for patch in patches:
        caught, note = bench.score(patch)
        rows.append((patch.stem, header(patch, "Breaks"), caught, note))
        show(rows[-1])
    print()
    table(rows)
    defects = [row for row in rows if row[0] != "baseline"]
    print(f"\n{sum(row[2] for row in defects)} of {len(defects)} caught, with {options.seeds} seeds a scenario")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10000, metavar="N", help="seeds for each scenario (10000)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="seeds checked at once (2)")
    parser.add_argument("--only", nargs="+", metavar="NN", help="only patches with these numbers")
    parser.add_argument("--profile", default="release", choices=["release", "dev"], help="release, or dev without optimization (release)")
    parser.add_argument("--all", action="store_true", help="go on with the other scenarios once one has caught the defect")
    parser.add_argument("--no-baseline", action="store_true", help="do not check the unchanged loader first")
    parser.add_argument("--timeout", type=int, default=900, metavar="S", help="seconds for one scenario (900)")
    parser.add_argument("--extra", type=shlex.split, default=[], metavar="ARGS", help="more arguments for `towtank check`, as --extra='ARGS'")
    return parser.parse_args()


def header(patch, field):
    """A field of what is written above a patch's diff."""
    lines, inside = [], False
    for line in patch.read_text().split("\ndiff --git ")[0].splitlines():
        if line.startswith(f"{field}: "):
            inside, line = True, line[len(field) + 2:]
        elif not line.startswith(" "):
            inside = False
        if inside:
            lines.append(line.strip())
    return " ".join(lines)


class Bench:
    """A scratch worktree with its own build folder; both are kept, so that a build compiles what a patch touches."""

    def __init__(self, options):
        self.options = options
        scratch = ROOT / "target" / "blind"
        self.tree, self.build_dir = scratch / "tree", scratch / "build"
        head = git(ROOT, "rev-parse", "HEAD").strip()
        if self.tree.exists():
            # Takes back what an interrupted run left applied.
            git(self.tree, "checkout", "--quiet", "--force", "--detach", head)
        else:
            scratch.mkdir(parents=True, exist_ok=True)
            git(ROOT, "worktree", "add", "--force", "--quiet", "--detach", str(self.tree), head)

    def score(self, patch):
        """Whether the defect was caught, and by what."""
        if patch is None:
            return self.check()
        if subprocess.run(["git", "apply", "--check", str(patch)], cwd=self.tree).returncode != 0:
            return False, "the patch does not apply"
        git(self.tree, "apply", str(patch))
        try:
            return self.check()
        finally:
            git(self.tree, "apply", "--reverse", str(patch))

    def check(self):
        cargo = os.environ.get("CARGO", "cargo")
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self.build_dir)}
        # Seeds decide, and not the optimizer: a build of a few seconds finds the same at the same seed.
        for name, value in {"CARGO_PROFILE_DEV_OPT_LEVEL": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}.items():
            environment.setdefault(name, value)
        command = [cargo, "build", "--quiet", "--bin", "towtank", "--profile", self.options.profile]
        built = subprocess.run(command, cwd=self.tree, env=environment, stderr=subprocess.PIPE, text=True)
        if built.returncode != 0:
            print(built.stderr, file=sys.stderr)
            return False, "does not build"
        folder = "release" if self.options.profile == "release" else "debug"
        program = self.build_dir / folder / "towtank"
        caught, notes = False, {}
        for scenario, settings in SCENARIOS:
            found, note = self.check_one(program, scenario, settings)
            caught |= found
            if note:
                notes.setdefault(note, []).append(scenario)
            if found and not self.options.all:
                break
        what = "; ".join(f"{note} [{', '.join(scenarios)}]" for note, scenarios in notes.items())
        return caught, what if caught else f"MISSED {what}".rstrip()

    def check_one(self, program, scenario, settings):
        command = [str(program), "check", scenario, "--seeds", str(self.options.seeds), "--swarm"]
        command += ["--jobs", str(self.options.jobs), "--json", *settings, *self.options.extra]
        try:
            # What it writes of a failure goes to the build folder.
            done = subprocess.run(
                command, cwd=self.build_dir, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=self.options.timeout
            )
        except subprocess.TimeoutExpired:
            return False, f"NO END within {self.options.timeout} s"
        if done.returncode == FOUND_NOTHING:
            return False, ""
        if done.returncode == FOUND:
            return True, describe(done.stdout)
        lines = done.stderr.strip().splitlines() or ["no message"]
        if done.returncode == BAD_INPUT:
            return False, f"bad input: {lines[0]}"
        return False, f"CRASHED with {done.returncode}: {lines[0]}"


def describe(text):
    """The failures in a report: each invariant, with the first seed that broke it."""
    try:
        failures = list(failures_in(json.loads(text)))
    except json.JSONDecodeError:
        failures = []
    first = {}
    for invariant, seed in failures:
        first.setdefault(invariant, seed)
    return ", ".join(f"{invariant} at seed {seed}" for invariant, seed in first.items()) or "a failure without a name"


def failures_in(report):
    """Every object of a report that names an invariant, with the seed beside or above it."""

    def walk(value, seed):
        if isinstance(value, dict):
            seed = value.get("seed", seed)
            name = value.get("invariant")
            if isinstance(name, dict):
                name = name.get("name")
            if isinstance(name, str) and seed is not None:
                yield name, seed
                return
            for key in value:
                yield from walk(value[key], seed)
        elif isinstance(value, list):
            for element in value:
                yield from walk(element, seed)

    yield from walk(report.get("failures", report) if isinstance(report, dict) else report, None)


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def show(row):
    name, _, caught, note = row
    print(f"{name}: {'caught' if caught else 'passed'}: {note}", flush=True)


def table(rows):
    width = max(60, shutil.get_terminal_size((160, 24)).columns)
    names = max(len(row[0]) for row in rows)
    breaks = max(20, (width - names - 6) // 2)
    print(f"{'patch':{names}} | {'what it breaks':{breaks}} | caught by")
    print(f"{'-' * names}-+-{'-' * breaks}-+-{'-' * (width - names - breaks - 6)}")
    for name, what, _, note in rows:
        what = what if len(what) <= breaks else what[: breaks - 1] + "…"
        print(f"{name:{names}} | {what:{breaks}} | {note}")


if __name__ == "__main__":
    main()
