"""What every peer script shares: its arguments, the list of files, the measured loop and the JSON line that it prints.

The stream is `epochs + 2` passes over the files, sorted by path, as one sequence. The first pass warms up and the last is
never finished: the steady window runs from the end of the first pass to the end of pass `epochs + 1`, so that the loader's queues are
full at both ends and no work done before the window is counted in it, nor left out after it.
"""

import argparse
import json
import os
import time

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SUFFIXES = (".jpg", ".jpeg")


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of JPEG files, searched recursively")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--workers", type=int, default=2, help="worker processes or threads")
    parser.add_argument("--epochs", type=int, default=5, help="measured passes over the files")
    parser.add_argument("--dump", help="write the first batch to this .npy file, u8 [batch, 224, 224, 3]")
    return parser.parse_args()


def files_of(folder):
    """The JPEG files below a folder, sorted by the bytes of their paths."""
    found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.lower().endswith(SUFFIXES)]
    if not found:
        raise SystemExit(f"no JPEG files below {folder}")
    return sorted(found, key=os.fsencode)


def stat_fields(pid):
    """The fields of /proc/PID/stat after the command's name, or None when the process has gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None


def cpu_s():
    """User and system time of this process and of all below it, those that have ended included."""
    children, ticks = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = stat_fields(pid)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(pid))
            ticks[int(pid)] = sum(map(int, fields[11:15]))
    total, below = 0, [os.getpid()]
    while below:
        pid = below.pop()
        total += ticks.get(pid, 0)
        below.extend(children.get(pid, []))
    return total / TICKS_PER_S


def age_s():
    """How long ago this process started."""
    with open("/proc/uptime") as file:
        return float(file.read().split()[0]) - int(stat_fields("self")[19]) / TICKS_PER_S


def measure(loader, version, options, file_count, batches, to_numpy):
    """Draws batches until the window is over and prints the JSON line.

    `batches` is called with the clock running and returns an iterator; `to_numpy` makes a batch u8 [n, 224, 224, 3] without changing
    a pixel, and must be cheap or lazy, since it is called on the first batch only.
    """
    import numpy as np

    started = time.perf_counter()
    images, first, start, end = 0, None, None, None
    for batch in batches():
        images += len(batch)
        if first is None:
            first = dict(first_batch_s=time.perf_counter() - started, process_to_first_batch_s=age_s())
            pixels = np.ascontiguousarray(to_numpy(batch))
            assert pixels.dtype == np.uint8 and pixels.shape[1:] == (224, 224, 3), (pixels.dtype, pixels.shape)
            if options.dump:
                np.save(options.dump, pixels)
            mean = float(pixels.mean())
        if start is None and images >= file_count:
            start = (images, time.perf_counter(), cpu_s())
        elif start is not None and images >= file_count * (options.epochs + 1):
            end = (images, time.perf_counter(), cpu_s())
            break
    if end is None:
        raise SystemExit(f"the stream ended after {images} images, before the measured window did")
    count, wall_s, cpu = (b - a for a, b in zip(start, end))
    line = dict(
        loader=loader,
        version=version,
        batch=options.batch,
        workers=options.workers,
        images=count,
        img_s=round(count / wall_s, 1),
        cpu_s_per_1k=round(cpu / count * 1000, 3),
        first_batch_s=round(first["first_batch_s"], 3),
        process_to_first_batch_s=round(first["process_to_first_batch_s"], 3),
        mean=round(mean, 3),
    )
    print(json.dumps(line), flush=True)
