//! How much a leaf allocates on the real machine, and a batch on the simulated one, once everything has grown.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use towtank::{
    machine::{
        Item, Machine, Op, Pixels, Work,
        real::{self, Config, RealMachine},
    },
    scenario::{self, Overrides},
    source::{Folder, Source},
    trace::{Recorder, StageId},
};

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Whoever counts counts what all threads do.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_read_of_a_file_and_a_job_allocate_once_each() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = tempfile::tempdir().expect("a temporary folder");
    for i in 0..16 {
        std::fs::write(root.path().join(format!("{i}.jpg")), vec![i; 10_000 * (1 + usize::from(i))]).expect("a file");
    }
    let source = Arc::new(Folder::images(&root).expect("images"));
    let files = source.len();
    let handle = real::launch(Config::new(source), Recorder::new(), move |machine: RealMachine<Pixels>| async move {
        let sample = |i: u64| {
            let m = machine.clone();
            async move {
                let item = Item { sample: i % files, ..Item::default() };
                let bytes = m.read(Op { stage: StageId::FETCH, item, ..Op::default() }).await.expect("it is there");
                let work = Work { kind: "decode", bytes: bytes.data.len() as u64, pixels: 0 };
                let job = move || bytes.data.iter().map(|b| u64::from(*b)).sum::<u64>();
                let op = Op { stage: StageId::DECODE, item, ..Op::default() };
                assert!(m.cpu(op, work, job).await.is_ok());
            }
        };
        for i in 0..500 {
            sample(i).await;
        }
        let before = COUNT.load(Relaxed);
        for i in 0..1000 {
            sample(i).await;
        }
        COUNT.load(Relaxed) - before
    });
    let allocations = handle.expect("threads").join().expect("it returns").value;
    // Tables of the trace and queues may still double once or twice.
    assert!((2000..2050).contains(&allocations), "{allocations} allocations for 1000 samples of two leaves each");
}

/// Allocations of a simulated run of so many epochs of 64 batches of eight, lent in their slots.
fn simulated(epochs: u32) -> u64 {
    let epochs = format!("loader.epochs={epochs}");
    let sets = ["machine=reference-2core", "dataset.count=512", "loader.batch=8", &epochs];
    let scenario = scenario::load("quickstart", &Overrides::set(sets)).expect("a scenario");
    let machine = scenario.machine_model().expect("a model");
    let samples = scenario.samples().expect("sizes").expect("no folder");
    let before = COUNT.load(Relaxed);
    scenario.simulate(&machine, &samples, Recorder::new()).expect("it fits together");
    COUNT.load(Relaxed) - before
}

#[test]
fn a_simulated_batch_allocates_what_its_leaves_do_and_nothing_of_its_own() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A job has a cell for its answer; a read has none.
    let allocations = simulated(8) - simulated(4);
    let (batches, leaves) = (4 * 64, 8);
    assert!((batches * leaves..batches * (leaves + 1)).contains(&allocations), "{allocations} for {batches} batches");
}
