//! What goes wrong while samples are on their way: progress, stops, faults, memory, caches, copies, latency.

use crate::zoo::{
    defect::Defect::*,
    entry::{
        BUDGET, CACHED, CHUNKS, CLEAN, CONSERVED, CONTENT, COPIES, EACH, Entry, LAUNCHES, LIMITED, LOOKS, NARROW, ONCE, PLAIN,
        PROGRESS, SURFACED, TWICE, entry,
    },
    kit::Shape,
};

/// The consumer leaves after its first batch.
const LEAVES: &[&str] = &["dataset.count=32", "loader.prefetch=1", "loader.batch=2", "consumer.leave_after=1"];

/// Why a read that nobody gives up is sound where costs do not count.
const READS_END: &str =
    "it takes a read that does not answer for longer than its deadline, and in abstract time every read ends, none too late";

/// Class by class.
pub const MOTIONS: &[Entry] = &[
    entry(
        Live1,
        PROGRESS,
        &["loader.lanes=2"],
        Shape { pool: 1, queue: 1, ..PLAIN },
        "the source is read by a thread of the pool that workers need",
    ),
    entry(
        Live3,
        PROGRESS,
        &["loader.prefetch=1", "loader.batch=2", "faults.undecodable=5 %"],
        NARROW,
        "who stops early does not tell those that wait for room in its queue",
    )
    .by_chance(),
    entry(
        Live4,
        PROGRESS,
        &["dataset.bytes=100 kB", "loader.batch=1"],
        Shape { limit: 1, ..PLAIN },
        "of two limits only one lets through what is too large for it",
    ),
    entry(Live5, PROGRESS, &[], Shape { pool: 3, ..PLAIN }, "a reader keeps its thread while it waits for one to decode on")
        .by_chance(),
    entry(
        Live8,
        PROGRESS,
        &["dataset.count=12", "loader.epochs=2"],
        Shape { chunk: 4, ..EACH },
        "workers wait for each other at the beginning of an epoch in which one has nothing to do",
    ),
    entry(
        Live9,
        PROGRESS,
        &["dataset.bytes=100 kB"],
        Shape { limit: 2, ..CHUNKS },
        "a chunk larger than the limit waits for ever",
    ),
    entry(Stop1, PROGRESS, LEAVES, NARROW, "the sign to stop travels behind data that nobody takes").by_chance(),
    entry(Stop2, CLEAN, LEAVES, COPIES, "the thread that copies is not told to stop").by_chance(),
    entry(Stop3, PROGRESS, &[], Shape { queue: 1, ..EACH }, "an end marker for which there is no room is lost").by_chance(),
    entry(Stop5, "no_panic", LEAVES, COPIES, "workers go before the thread that copies what they made").by_chance(),
    entry(Stop7, CLEAN, LEAVES, PLAIN, "only the outermost of nested threads can be closed"),
    entry(Stop8, CLEAN, TWICE, PLAIN, "every epoch leaves a thread with its buffers behind"),
    entry(Stop9, CLEAN, LEAVES, PLAIN, "nobody tells producers that the consumer has left"),
    entry(
        Fault1,
        PROGRESS,
        &["loader.errors=skip", "faults.panicking=2 %"],
        PLAIN,
        "a worker dies with its sample, and its answer is waited for",
    )
    .by_chance(),
    entry(
        Fault2,
        PROGRESS,
        &["loader.errors=skip", "loader.fetch_deadline=200 ms", "faults.stalled=2 %"],
        PLAIN,
        "who looks whether a thread is alive does not see what it waits for",
    )
    .by_chance()
    .takes_time(READS_END),
    entry(
        Fault3,
        PROGRESS,
        &["dataset.count=40", "dataset.bytes=100 kB", "loader.batch=2", "loader.errors=skip", "faults.panicking=10 %"],
        Shape { limit: 4, ..PLAIN },
        "a worker that dies keeps its permits",
    )
    .by_chance(),
    entry(Fault5, ONCE, &["loader.errors=skip", "faults.undecodable=2 %"], PLAIN, "errors go into the log, and nowhere else")
        .by_chance(),
    entry(Fault6, PROGRESS, LEAVES, NARROW, "a worker waits for room in a queue that nobody empties any more").by_chance(),
    entry(
        Fault7,
        PROGRESS,
        &["loader.lanes=1", "loader.errors=skip", "faults.panicking=2 %"],
        PLAIN,
        "a dead worker counts as one of the pool, and is not replaced",
    )
    .by_chance(),
    entry(
        Fault8,
        PROGRESS,
        &["loader.errors=skip", "loader.fetch_deadline=200 ms", "faults.stalled=2 %"],
        PLAIN,
        "a read has no deadline",
    )
    .by_chance()
    .takes_time(READS_END),
    entry(
        Fault9,
        ONCE,
        &["loader.errors=skip", "faults.undecodable=2 %"],
        CHUNKS,
        "the handler of a broken sample drops the rest of its shard",
    )
    .by_chance(),
    entry(
        Mem1,
        BUDGET,
        &["dataset.bytes=100 kB", "loader.ring=16", "loader.lanes=8", "consumer.step=100 ms"],
        LIMITED,
        "producers do not see how far behind the consumer is",
    )
    .room(6),
    entry(
        Mem2,
        BUDGET,
        &["dataset.bytes=100 kB", "loader.ring=16", "loader.lanes=8", "loader.batch=2"],
        LIMITED,
        "what workers hold is in nobody's books",
    )
    .room(6),
    entry(
        Mem3,
        BUDGET,
        &["dataset.bytes=100 kB", "loader.ring=16", "loader.lanes=8"],
        LIMITED,
        "samples are counted as small as they were before they were decoded",
    )
    .room(6),
    entry(
        Mem4,
        BUDGET,
        &["dataset.count=32", "dataset.bytes=100 kB", "loader.ring=16", "faults.slow_reads=5 %"],
        LIMITED,
        "what waits for its turn is in nobody's books",
    )
    .room(6)
    .by_chance(),
    entry(Mem6, BUDGET, &["loader.ring=8"], Shape { slots: true, ..PLAIN }, "slots are planned by worker and not by need"),
    entry(Mem8, CLEAN, &["loader.epochs=3"], PLAIN, "buffers of an epoch that is over are kept"),
    entry(Mem10, CLEAN, &[], Shape { files: true, ..PLAIN }, "the last file of each worker is never deleted"),
    entry(Cache1, SURFACED, &["loader.errors=skip"], CACHED, "a chunk is deleted by whoever is first done with it"),
    entry(Cache2, CLEAN, &[], CACHED, "the count of a chunk's users is read at one time and written at another").by_chance(),
    entry(Xfer1, CONTENT, &["dataset.count=40"], COPIES, "a buffer is free when the first part of its copy has ended"),
    entry(Xfer4, CONTENT, &["dataset.count=40"], COPIES, "a buffer is free when its copy has been begun"),
    entry(Xfer5, CONTENT, &["dataset.count=40", "consumer.hold=3"], COPIES, "what the consumer holds is the buffer itself"),
    entry(Xfer6, CONTENT, &["dataset.count=40"], Shape { buffers: 1, ..PLAIN }, "two steps are under way with one buffer"),
    entry(
        Lat1,
        CONSERVED,
        &["loader.ring=64", "faults.slow_reads=5 %"],
        LAUNCHES,
        "work is dealt out in turn, and one slow worker keeps the others waiting",
    ),
    entry(Lat10, CONSERVED, &["loader.ring=64"], LAUNCHES, "after a shuffle of shards one worker has them all"),
    entry(
        Spdl2,
        ONCE,
        &["loader.errors=skip", "faults.missing=2 %"],
        LOOKS,
        "a source that raises ends the epoch as if it were over",
    )
    .by_chance(),
    entry(
        Spdl3,
        ONCE,
        &["loader.epochs=3", "loader.errors=skip", "faults.missing=2 %"],
        LOOKS,
        "after a source has raised, every later epoch is empty",
    )
    .by_chance(),
    entry(
        Spdl10,
        SURFACED,
        &["loader.errors=skip", "faults.undecodable=2 %"],
        PLAIN,
        "a failure in the batcher ends a run that may skip any number",
    )
    .by_chance(),
];
