//! What threads of the pools share with the scheduler, and how a leaf's answer comes home.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{StoreDelay, Wakes, clock::WallClock, cold::Cold, pool::Pool, usage};
use crate::{
    failure::{Failure, FailureKind},
    machine::{Clock, Recycler, Time},
    source::Source,
    sync::{Handoff, Leaf},
};

/// What threads share.
pub(super) struct Home {
    pub(super) clock: WallClock,
    pub(super) source: Arc<dyn Source>,
    /// How cold reads have been.
    pub(super) cold: Cold,
    /// What every read waits for beside its own time.
    pub(super) store_delay: Option<Arc<dyn StoreDelay>>,
    /// Reads that may wait on their source's runtime at once, when that is limited.
    pub(super) connections: Option<Semaphore>,
    pub(super) recycler: Recycler,
    pub(super) handoff: Handoff<Completion>,
    /// Threads for CPU jobs and cached reads.
    pub(super) cpu: Pool,
    /// Threads that may wait for a device.
    pub(super) io: Pool,
    /// Fewer queued jobs than this: the pool is about to run dry.
    dry_below: usize,
    leaf_cpu: bool,
}

/// The news that a leaf has ended; its answer stays in the leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) key: u32,
    pub(super) failed: Option<FailureKind>,
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) bytes: u64,
    /// CPU time of the thread that ran it \[ns\]; zero unless asked for.
    pub(super) cpu_ns: u64,
}

/// Where and when a leaf began.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) key: u32,
    pub(super) start: Time,
    /// CPU time of the thread until then; `None` when it does not count.
    cpu_ns: Option<u64>,
}

impl Begun {
    /// The same for a leaf that ends on another thread, whose CPU time says nothing.
    pub(super) fn elsewhere(self) -> Begun {
        Begun { cpu_ns: None, ..self }
    }

    /// The same for a leaf that ends on this thread and has used so much on any, if that counts.
    pub(super) fn having_used(self, cpu_ns: u64) -> Begun {
        Begun { cpu_ns: self.cpu_ns.map(|_| usage::thread_cpu_ns().saturating_sub(cpu_ns)), ..self }
    }

    /// Whether CPU time counts.
    pub(super) fn counts_cpu(&self) -> bool {
        self.cpu_ns.is_some()
    }
}

impl Home {
    pub(super) fn new(
        source: Arc<dyn Source>,
        recycler: Recycler,
        cpu: Pool,
        io: Pool,
        wakes: Wakes,
        threads: usize,
        leaf_cpu: bool,
    ) -> Home {
        let age_ns = u64::try_from(wakes.age.as_nanos()).unwrap_or(u64::MAX);
        Home {
            clock: WallClock::start(),
            source,
            cold: Cold::default(),
            store_delay: None,
            connections: None,
            recycler,
            handoff: Handoff::new(wakes.burst, age_ns),
            cpu,
            io,
            dry_below: wakes.dry_per_thread.saturating_mul(threads),
            leaf_cpu,
        }
    }

    /// Begins a leaf on this thread; `None` when it was given up.
    pub(super) fn begin<J, R>(&self, key: u32, leaf: &Leaf<J, R>) -> Option<(J, Begun)> {
        let start = self.clock.now();
        let job = leaf.begin(start.0)?;
        let cpu_ns = self.leaf_cpu.then(usage::thread_cpu_ns);
        Some((job, Begun { key, start, cpu_ns }))
    }

    /// Ends a leaf: leaves its answer in it, or drops an answer that nobody wants, and tells the scheduler.
    pub(super) fn finish<J, R>(&self, begun: Begun, leaf: &Leaf<J, Result<R, Failure>>, answer: Result<R, Failure>, bytes: u64) {
        let failed = answer.as_ref().err().map(|failure| failure.kind);
        if let Some(unwanted) = leaf.answer(answer) {
            // The drop of something foreign may panic. The news must come home all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(unwanted)));
        }
        self.tell(begun, failed, bytes);
    }

    /// Tells the scheduler that a leaf has ended.
    pub(super) fn tell(&self, begun: Begun, failed: Option<FailureKind>, bytes: u64) {
        let cpu_ns = begun.cpu_ns.map_or(0, |before| usage::thread_cpu_ns().saturating_sub(before));
        let end = self.clock.now();
        let news = Completion { key: begun.key, failed, start: begun.start, end, bytes, cpu_ns };
        self.handoff.push(news, end.0, || self.cpu.queued() < self.dry_below);
    }

    /// Lets a leaf that began at `start` take `times` times as long, without giving its thread away.
    pub(super) fn stretch(&self, start: Time, times: u32, wanted: &dyn Fn() -> bool) {
        let once = self.clock.now() - start;
        self.wait_until(start + once * times, Duration::from_millis(1), wanted);
    }

    /// Waits as long as a store would, on this thread, and not much longer than anybody wants it.
    pub(super) fn wait(&self, time: Duration, wanted: &dyn Fn() -> bool) {
        self.wait_until(self.clock.now() + time, Duration::from_millis(20), wanted);
    }

    #[expect(clippy::disallowed_methods, reason = "threads of the real machine wait")]
    fn wait_until(&self, end: Time, piece: Duration, wanted: &dyn Fn() -> bool) {
        while self.clock.now() < end && wanted() {
            std::thread::sleep((end - self.clock.now()).min(piece));
        }
    }
}
