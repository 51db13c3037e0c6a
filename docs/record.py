"""Records what a training loop sees of its data loader, for `towtank compare SCENARIO --measured FILE`; see trace-format.md."""
import json, multiprocessing, os, resource, sys, time


def record(loader, path, /, epochs=1, tell=lambda b: {"samples": len(b if hasattr(b, "shape") else b[0])}, **header):
    asked, used = time.perf_counter(), sum(os.times()[:4])
    with open(path, "w") as out:
        print(json.dumps({"towtank_trace": 1, "start": asked, "cores": os.cpu_count(), **header}), file=out)
        for epoch, batch in ((epoch, batch) for epoch in range(epochs) for batch in loader):
            line = {"epoch": epoch, "asked": asked, "got": time.perf_counter(), **tell(batch)}
            yield batch
            print(json.dumps({**line, "done": (asked := time.perf_counter())}), file=out)
        cpu_s = None if multiprocessing.active_children() else sum(os.times()[:4]) - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        print(json.dumps({"end": time.perf_counter(), "cpu_s": cpu_s, "peak_rss_bytes": peak}), file=out)
