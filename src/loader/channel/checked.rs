//! The channel under loom: no wake is lost, whatever the threads' interleaving.
//!
//! ```sh
//! CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg towtank_loom" cargo test --release --lib loader::channel::checked
//! ```

use std::future::poll_fn;

use loom::{future::block_on, model::Builder, thread};

use super::*;
use crate::loader::{Settings, State};

/// Explores a model. Three preemptions are where loom finds what there is to find in models this small.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[derive(Clone)]
struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Time {
        Time::ZERO
    }
}

fn content(index: u64) -> Content<(), u8> {
    Content {
        index,
        epoch: 0,
        items: Vec::new(),
        skipped: Vec::new(),
        state: State::start(&Settings::new(1, 1, 1)),
        memory: Memory::Device(()),
        units_per_sample: 1,
        ready: Time::ZERO,
    }
}

/// Waits on the loader's side until what the consumer did satisfies `enough`.
fn hear(sender: &Sender<(), u8>, mut enough: impl FnMut(Status, &[Note<(), u8>]) -> bool) {
    let mut notes = Vec::new();
    block_on(poll_fn(|cx| {
        let status = sender.exchange(cx.waker(), &mut notes, &mut Vec::new());
        if enough(status, &notes) { Poll::Ready(()) } else { Poll::Pending }
    }));
}

fn returned(notes: &[Note<(), u8>]) -> usize {
    notes.iter().filter(|note| matches!(note, Note::Returned { .. })).count()
}

#[test]
fn a_blocking_consumer_gets_every_batch_and_the_loader_sees_it_at_the_end() {
    explore(|| {
        let (sender, mut batches) = channel(NoClock);
        let consumer = thread::spawn(move || {
            for index in 0..2 {
                assert_eq!(batches.next().map(|batch| batch.map(|batch| batch.index())), Some(Ok(index)));
            }
            assert!(batches.next().is_none());
        });
        sender.push(content(0));
        sender.push(content(1));
        sender.end(Ok(()));
        hear(&sender, |status, notes| status.seen_end && returned(notes) == 2);
        consumer.join().expect("the consumer is content");
    });
}

#[test]
fn an_async_consumer_is_woken_too() {
    explore(|| {
        let (sender, mut batches) = channel(NoClock);
        let consumer = thread::spawn(move || {
            block_on(async {
                assert!(batches.recv().await.is_some_and(|batch| batch.is_ok()));
                assert!(batches.recv().await.is_none());
            });
        });
        sender.push(content(0));
        sender.end(Ok(()));
        hear(&sender, |status, _| status.seen_end);
        consumer.join().expect("the consumer is content");
    });
}

#[test]
fn memory_that_comes_home_wakes_the_loader() {
    explore(|| {
        let (sender, mut batches) = channel(NoClock);
        sender.push(content(0));
        let consumer = thread::spawn(move || {
            drop(batches.next());
            batches
        });
        hear(&sender, |_, notes| returned(notes) == 1);
        drop(consumer.join().expect("the consumer is content"));
    });
}

#[test]
fn a_consumer_that_waits_while_it_holds_a_batch_is_noticed() {
    explore(|| {
        let (sender, mut batches) = channel(NoClock);
        sender.push(content(0));
        let consumer = thread::spawn(move || {
            let kept = batches.next();
            assert!(matches!(batches.next(), Some(Err(Error::Held { batches: 1, oldest: 0 }))));
            drop(kept);
        });
        hear(&sender, |status, _| status.waits_holding == Some((1, 0)));
        sender.end(Err(Error::Held { batches: 1, oldest: 0 }));
        hear(&sender, |status, _| status.seen_end);
        consumer.join().expect("the consumer is content");
    });
}

#[test]
fn a_consumer_that_leaves_is_noticed_and_gets_the_loader_gone() {
    explore(|| {
        let (sender, batches) = channel::<(), u8>(NoClock);
        let consumer = thread::spawn(move || assert_eq!(batches.close(), None));
        hear(&sender, |status, _| status.left);
        drop(sender);
        consumer.join().expect("the consumer is content");
    });
}

#[test]
fn a_loader_that_is_lost_is_an_error() {
    explore(|| {
        let (sender, mut batches) = channel::<(), u8>(NoClock);
        let loader = thread::spawn(move || drop(sender));
        assert!(matches!(batches.next(), Some(Err(Error::Lost))));
        assert!(batches.next().is_none());
        loader.join().expect("it is gone");
    });
}
