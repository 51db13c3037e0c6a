"""SPDL: threads in one process, FFmpeg's JPEG decoder and bilinear scaling of whole batches (`load_image_batch`), in input order.

One JSON line on standard output; see README.md.
"""

from importlib.metadata import version

import spdl.io
from spdl.pipeline import PipelineBuilder

import stopwatch

# FFmpeg's bilinear filter widens with the scale when an image shrinks, so it is antialiased.
FILTER = spdl.io.get_video_filter_desc(scale_width=224, scale_height=224, scale_algo="bilinear", scale_mode=None, pix_fmt="rgb24")


def load(paths):
    buffer = spdl.io.load_image_batch(paths, width=None, height=None, pix_fmt=None, filter_desc=FILTER)
    return spdl.io.to_numpy(buffer)


def main():
    options = stopwatch.arguments(__doc__)
    files = stopwatch.files_of(options.data)
    workers = max(1, options.workers)

    def batches():
        stream = files * (options.epochs + 2)
        paths = [stream[i : i + options.batch] for i in range(0, len(stream), options.batch)]
        pipeline = (
            PipelineBuilder()
            .add_source(paths)
            .pipe(load, concurrency=workers, output_order="input")
            .add_sink(3)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=120)

    stopwatch.measure("spdl", f"spdl-io {version('spdl-io')}", options, len(files), batches, lambda batch: batch)


if __name__ == "__main__":
    main()
