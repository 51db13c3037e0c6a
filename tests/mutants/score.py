#!/usr/bin/env python3
"""Scores the test suite against mutants of the loader, all of them in one build.

From the loader's files a fixed seed draws places where an operator is exchanged, a `!` or a statement goes, or a function's body becomes a
constant, as cargo-mutants does it. Each function gets a copy of its body for each of its mutants, and the variable TOWTANK_MUTANT says at run
time which one is in force, so that eighty mutants cost one build of the suite. Mutants that do not compile are left out and counted. Each
of the others then runs the suite's binaries, those first that say most in least time, until one fails; a binary that does not end
fails too. Doc tests and the model checker's tests are left out.
"""

import argparse
import io
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILES = ["plan", "lane", "ring", "ledger", "batch", "state", "control", "assembly"]
FIRST = ["golden", "scenarios", "check", "loader", "towtank", "zoo", "sim", "allocations", "scenario_messages", "codec", "command_line", "remote"]
# The model checker's, and those of the program's own two lines.
LEFT_OUT = {"loom"}
OPERATORS = {
    " == ": [" != "], " != ": [" == "], " < ": [" <= ", " > "], " <= ": [" < "], " > ": [" >= ", " < "], " >= ": [" > "],
    " && ": [" || "], " || ": [" && "], " + ": [" - "], " - ": [" + "], " * ": [" + "], " / ": [" * "], " % ": [" / "],
    " += ": [" -= "], " -= ": [" += "],
}
SWITCH = """//! Which mutant is in force.

static CHOSEN: std::sync::LazyLock<Option<u32>> =
    std::sync::LazyLock::new(|| std::env::var("TOWTANK_MUTANT").ok().and_then(|number| number.parse().ok()));

pub(crate) fn on(number: u32) -> bool {
    *CHOSEN == Some(number)
}
"""


class Function:
    """A function outside of tests: its file, its name, and where its body lies, without the braces."""

    def __init__(self, file, name, result, start, end):
        self.file, self.name, self.result, self.start, self.end = file, name, result, start, end


class Mutant:
    """A text that takes the place of `[start, end)` in a function."""

    def __init__(self, function, start, end, text, what):
        self.function, self.start, self.end, self.text, self.what = function, start, end, text, what
        self.number, self.line = 0, 0


def main():
    options = parse()
    texts = {name: (ROOT / "src/loader" / f"{name}.rs").read_text() for name in FILES}
    functions = [function for name in FILES for function in find_functions(name, texts[name])]
    found = [mutant for function in functions for mutant in find_mutants(function, texts[function.file])]
    drawn = random.Random(options.seed).sample(found, min(options.count, len(found)))
    drawn.sort(key=lambda mutant: (FILES.index(mutant.function.file), mutant.start, mutant.text))
    for number, mutant in enumerate(drawn, 1):
        mutant.number = number
        mutant.line = texts[mutant.function.file].count("\n", 0, mutant.start) + 1
    print(f"{len(drawn)} of {len(found)} mutants drawn with seed {options.seed}, in {len(functions)} functions of {len(FILES)} files")
    if options.list:
        for mutant in drawn:
            print(describe(mutant))
        return
    tree = pathlib.Path(options.tree) if options.tree else ROOT / "target/mutants/tree"
    copy_tree(tree)
    viable = build(tree, texts, functions, drawn, options)
    if unknown := set(options.only or []) - {mutant.number for mutant in viable}:
        sys.exit(f"no mutant that compiles has the number {', '.join(map(str, sorted(unknown)))}")
    binaries = test_binaries(tree, options)
    run_all(tree, binaries, viable, options)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the draw (1)")
    parser.add_argument("--count", type=int, default=80, metavar="N", help="mutants to draw (80)")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="run only the mutants with these numbers")
    parser.add_argument("--timeout", type=int, default=180, metavar="S", help="seconds for one test binary (180)")
    parser.add_argument("--list", action="store_true", help="list the mutants and build nothing")
    parser.add_argument("--tree", metavar="DIR", help="where the mutated copy goes (target/mutants/tree)")
    parser.add_argument("--cargo", default="cargo", help="the cargo to call")
    return parser.parse_args()


def blank(text):
    """The text with comments, strings and characters made spaces, of the same length."""
    pattern = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', re.S)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def closing(text, start, pair):
    """Where the bracket closes that opens at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if depth == 0:
            return place
    raise ValueError(f"no end of what begins at {start}")


def find_functions(file, text):
    plain = blank(text.split("#[cfg(test)]\nmod tests")[0])
    functions = []
    for head in re.finditer(r"(?<!const )\bfn (\w+)", plain):
        # Generic parameters may hold parentheses of their own, but none of these files has such.
        arguments = closing(plain, plain.index("(", head.end()), "()")
        stop = re.compile(r"[{;]").search(plain, arguments)
        if stop is None or stop.group() == ";":
            continue
        result = plain[arguments + 1 : stop.start()].split("where")[0].strip().removeprefix("->").strip()
        if "impl " not in result:
            functions.append(Function(file, head.group(1), result, stop.end(), closing(plain, stop.start(), "{}")))
    return functions


def find_mutants(function, text):
    plain = blank(text)
    body = plain[function.start : function.end]
    for operator, others in OPERATORS.items():
        for found in re.finditer(re.escape(operator), body):
            # What looks like a closure without parameters, or a bound of a type.
            start = function.start + found.start()
            for other in others:
                yield Mutant(function, start, start + len(operator), other, f"`{operator.strip()}` becomes `{other.strip()}`")
    for found in re.finditer(r"(?<=[ (])!(?=[a-z(])", body):
        start = function.start + found.start()
        yield Mutant(function, start, start + 1, "", "`!` goes")
    for found in re.finditer(r"\n +((?:\*?self|core|\w+)\.[^\n]*;)\n", body):
        start, end = function.start + found.start(1), function.start + found.end(1)
        yield Mutant(function, start, end, "", f"`{text[start:end]}` goes")
    for constant in constants(function.result):
        if body.strip() != constant:
            yield Mutant(function, function.start, function.end, f" {constant} ", f"the body becomes `{constant or '{}'}`")


def constants(result):
    if result == "":
        return [""]
    if result == "bool":
        return ["true", "false"]
    if result.startswith("Option<"):
        return ["None"]
    if result in ("usize", "u64", "u32"):
        return ["0", "1"]
    return []


def describe(mutant):
    return f"{mutant.number:2} src/loader/{mutant.function.file}.rs:{mutant.line} {mutant.function.name}: {mutant.what}"


def put(path, content):
    """Writes what has changed, so that no more is built than must be."""
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_tree(tree):
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    mutated = {f"src/loader/{name}.rs" for name in FILES}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if member.isfile() and member.name not in mutated:
                content = files.extractfile(member).read()
                put(tree / member.name, content + b"\nmod mutant;\n" if member.name == "src/lib.rs" else content)
                (tree / member.name).chmod(member.mode)
    put(tree / "src/mutant.rs", SWITCH.encode())


def write(tree, texts, functions, mutants):
    for file in FILES:
        text, pieces, at = texts[file], [], 0
        for function in [function for function in functions if function.file == file]:
            own = [mutant for mutant in mutants if mutant.function is function]
            if not own or function.start < at:
                continue
            pieces.append(text[at : function.start])
            for mutant in own:
                changed = text[function.start : mutant.start] + mutant.text + text[mutant.end : function.end]
                pieces.append(f"\n/*mutant {mutant.number}*/ if crate::mutant::on({mutant.number}) {{{changed}}} else {{ /*mutant 0*/")
            pieces.append(text[function.start : function.end] + "}" * len(own))
            at = function.end
        pieces.append(text[at:])
        put(tree / "src/loader" / f"{file}.rs", "".join(pieces).encode())


def cargo(tree, options, *arguments):
    return subprocess.run([options.cargo, *arguments, "--message-format=json"], cwd=tree, capture_output=True, text=True)


def build(tree, texts, functions, drawn, options):
    """Leaves out what does not compile."""
    viable = list(drawn)
    while True:
        write(tree, texts, functions, viable)
        bad = set()
        answer = cargo(tree, options, "check", "--lib")
        for line in answer.stdout.splitlines():
            message = json.loads(line).get("message")
            if not isinstance(message, dict) or message.get("level") != "error":
                continue
            for span in message["spans"]:
                path = tree / span["file_name"]
                if path.is_file():
                    before = "\n".join(path.read_text().split("\n")[: span["line_start"] - 1])
                    marks = re.findall(r"/\*mutant (\d+)\*/", before + "\n" + path.read_text().split("\n")[span["line_start"] - 1])
                    bad.update(int(mark) for mark in marks[-1:])
        bad.discard(0)
        if answer.returncode == 0:
            return viable
        if not bad:
            sys.exit(answer.stderr)
        for mutant in viable:
            if mutant.number in bad:
                print("does not compile:", describe(mutant), flush=True)
        viable = [mutant for mutant in viable if mutant.number not in bad]


def test_binaries(tree, options):
    answer = cargo(tree, options, "test", "--no-run")
    if answer.returncode != 0:
        sys.exit(answer.stderr)
    found = {}
    for line in answer.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            kind = message["target"]["kind"][0]
            if kind in ("lib", "test") and message["target"]["name"] not in LEFT_OUT:
                found[message["target"]["name"]] = message["executable"]
    rank = {name: place for place, name in enumerate(FIRST)}
    return sorted(found.items(), key=lambda item: rank.get(item[0], len(FIRST)))


def run_all(tree, binaries, viable, options):
    environment = {**os.environ, "INSTA_UPDATE": "no", "INSTA_FORCE_PASS": "0"}
    if failing := [name for name, path in binaries if failure(tree, path, environment, options)]:
        sys.exit(f"the loader without mutants fails {', '.join(failing)}")
    caught, survivors = 0, []
    chosen = [mutant for mutant in viable if not options.only or mutant.number in options.only]
    for mutant in chosen:
        began = time.monotonic()
        by = None
        for name, path in binaries:
            if why := failure(tree, path, {**environment, "TOWTANK_MUTANT": str(mutant.number)}, options):
                by = f"{name} {why}"
                break
        caught += by is not None
        if by is None:
            survivors.append(mutant)
        print(f"{describe(mutant)}: {by or 'SURVIVED'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"\n{caught} of {len(chosen)} viable mutants caught ({100 * caught / len(chosen):.0f} %)")
    for mutant in survivors:
        print("survived:", describe(mutant))


def failure(tree, path, environment, options):
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    # A session of its own, so that programs that a test has started and that hang go with it.
    test = subprocess.Popen([path, "-q"], cwd=tree, env=environment, start_new_session=True, **output)
    try:
        told, _ = test.communicate(timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return "does not end"
    finally:
        try:
            os.killpg(test.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        test.wait()
    if test.returncode == 0:
        return None
    failed = re.findall(r"^    (\S+)$", told, re.M)
    return failed[0] if failed else f"ends with {test.returncode}"


if __name__ == "__main__":
    main()
