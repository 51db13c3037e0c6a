#!/usr/bin/env python3
"""Puts defects into the GPU's device, one at a time, and sees whether `cargo test --test cuda` notices.

Each is a text of the device's source that is exchanged, in a copy of the tree. What is exchanged must be there, once: where it is not, the
device has changed, and its defect here is to be written anew.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from score import ROOT, put  # noqa: E402

DEVICE = pathlib.Path("src/device/cuda")
DEFECTS = [
    (
        "a slot comes back when its copy is put on the stream, not when it is over",
        "underway.rs",
        "let Err(failure) = enqueued.and_then(|()| self.tell(id).map_err(|error| error.failure())) else { return };",
        "let Err(failure) = enqueued else {\n"
        "            if let Some(ending) = self.take(id) {\n                ending.complete();\n            }\n            return;\n        };",
    ),
    (
        "the copy into a batch does not wait for the kernels that read what was in it",
        "gpu.rs",
        "                stream.wait(&reader.read)?;\n",
        "",
    ),
    (
        "a consumer's reads are not recorded, so that the next copy waits for none of them",
        "gpu.rs",
        "            reader.read.record(stream)?;\n",
        "",
    ),
    (
        "the host function behind a copy does nothing",
        "underway.rs",
        "            ending.complete();\n",
        "            std::mem::forget(ending);\n",
    ),
    (
        "the memory of a batch is freed while a kernel reads it",
        "gpu.rs",
        "recorded.and_then(|()| reader.read.synchronize())",
        "recorded",
    ),
]


def main():
    options = parse()
    tree = ROOT / "target/mutants/device"
    chosen = [(number, *defect) for number, defect in enumerate(DEFECTS, 1) if not options.only or number in options.only]
    restore(tree)
    if why := failure(tree, options):
        sys.exit(f"the device without defects fails: {why}")
    caught = 0
    for number, what, file, old, new in chosen:
        restore(tree)
        path = tree / DEVICE / file
        text = path.read_text()
        if text.count(old) != 1:
            sys.exit(f"{number}: {DEVICE / file} has this text {text.count(old)} times, not once:\n{old}")
        put(path, text.replace(old, new).encode())
        began = time.monotonic()
        why = failure(tree, options)
        caught += why is not None
        print(f"{number} {what}: {why or 'SURVIVED'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{caught} of {len(chosen)} caught")
    sys.exit(caught < len(chosen))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="only the defects with these numbers")
    parser.add_argument("--timeout", type=int, default=300, metavar="S", help="seconds for the test binary (300)")
    parser.add_argument("--cargo", default="cargo", help="the cargo to call")
    return parser.parse_args()


def restore(tree):
    """The tree as it is committed or changed here, without what is built."""
    names = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(["git", *names], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            put(tree / name, (ROOT / name).read_bytes())
            (tree / name).chmod((ROOT / name).stat().st_mode)


def failure(tree, options):
    """What fails; nothing where all is well."""
    built = subprocess.run([options.cargo, "test", "--test", "cuda", "--no-run", "--quiet"], cwd=tree, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(built.stderr)
    command = [options.cargo, "test", "--test", "cuda", "--quiet"]
    # A session of its own, so that what hangs goes with it.
    test = subprocess.Popen(command, cwd=tree, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        told, _ = test.communicate(timeout=options.timeout)
    except subprocess.TimeoutExpired:
        os.killpg(test.pid, signal.SIGKILL)
        test.wait()
        return "does not end"
    if test.returncode == 0:
        return None
    failed = list(dict.fromkeys(re.findall(r"^    ([\w:]+)$", told, re.M)))
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    return (", ".join(failed[:3]) or f"ends with {test.returncode}") + more


if __name__ == "__main__":
    main()
