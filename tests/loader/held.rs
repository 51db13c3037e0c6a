//! A consumer that keeps batches.

use std::collections::VecDeque;

use towtank::{
    loader::{Batches, End, Error, Order, Outcome, Settings},
    machine::{Machine, Tags, Unit},
};

use crate::{
    content::machine,
    paused,
    scenario::load,
    world::{Decode, SLOT_BYTES, Source, World},
};

const WORLD: World = World { seed: 1, fetch_ms: 20, decode_ms: 20, bad_reads: 0, bad_decodes: 0 };

/// Keeps the batches that `keeps` says, of those it has, and asks for more. Returns how many it had, and the error.
fn keep(
    settings: &Settings,
    world: World,
    lends_slots: bool,
    keeps: impl Fn(u64, u64) -> bool,
) -> (usize, Option<Error>, Outcome, (usize, usize)) {
    async fn taking<M: Machine>(
        mut batches: Batches<M::DeviceBatch, Unit<M>>,
        keeps: impl Fn(u64, u64) -> bool,
    ) -> ((usize, Option<Error>), Option<Outcome>) {
        let (mut kept, mut count, mut error) = (VecDeque::new(), 0, None);
        while let Some(batch) = batches.recv().await {
            match batch {
                Ok(batch) => {
                    count += 1;
                    let last = batch.index();
                    kept.push_back(batch);
                    kept.retain(|batch| keeps(batch.index(), last));
                }
                Err(failed) => error = Some(failed),
            }
        }
        assert!(batches.recv().await.is_none(), "after the end there is nothing");
        drop(kept);
        ((count, error), batches.closed().await)
    }
    let config = paused::Config { lends_slots, ..machine(1) };
    let run = paused::run::<Tags, _, _>(config, |machine| {
        load(machine, settings.clone(), Source(world), Decode(world), |_: paused::Paused<Tags>, batches| {
            taking::<paused::Paused<Tags>>(batches, keeps)
        })
    });
    let ((count, error), outcome) = run.value;
    (count, error, outcome, run.left)
}

fn every_kind(check: impl Fn(Settings, bool)) {
    for order in [Order::Plan, Order::Completion] {
        for (prefetch, held) in [(0, 1), (1, 1), (2, 3)] {
            for lends in [false, true] {
                for lanes in [1, 5, 64] {
                    check(Settings { order, prefetch, held, lanes, ..Settings::new(200, 4, SLOT_BYTES) }, lends);
                }
            }
        }
    }
}

#[test]
fn keeping_every_batch_is_an_error_that_says_so() {
    every_kind(|settings, lends| {
        let (count, error, outcome, left) = keep(&settings, WORLD, lends, |_, _| true);
        let most = settings.prefetch + settings.held;
        assert_eq!((count, error), (most, Some(Error::Held { batches: most, oldest: 0 })), "{settings:?}");
        assert!(outcome.accounts.balanced());
        assert_eq!(left, (0, 0));
    });
}

#[test]
fn keeping_every_batch_is_an_error_for_the_last_one_too_and_none_when_all_were_had() {
    every_kind(|settings, lends| {
        let most = settings.prefetch + settings.held;
        let one_more = Settings { samples: 4 * (most as u64 + 1), ..settings.clone() };
        let (count, error, _, _) = keep(&one_more, WORLD, lends, |_, _| true);
        assert_eq!((count, error), (most, Some(Error::Held { batches: most, oldest: 0 })), "{settings:?}");
        let (count, error, _, _) = keep(&Settings { samples: 4 * most as u64, ..settings }, WORLD, lends, |_, _| true);
        assert_eq!((count, error), (most, None));
    });
}

#[test]
fn keeping_one_less_than_there_are_is_allowed() {
    every_kind(|settings, lends| {
        let spare = (settings.prefetch + settings.held) as u64 - 1;
        let (count, error, outcome, _) = keep(&settings, WORLD, lends, |index, last| index + spare > last);
        assert_eq!((count, error, outcome.end), (50, None, End::Finished), "{settings:?}");
    });
}

#[test]
fn keeping_one_less_is_allowed_though_samples_fail_and_the_ring_is_small() {
    use towtank::loader::{Allowance, OnError};
    let world = World { bad_reads: 300, bad_decodes: 300, ..WORLD };
    every_kind(|settings, lends| {
        for ring in [4, 5, 12, 60] {
            let on_error = OnError::Skip { at_most: Allowance::ANY };
            let settings = Settings { ring: Some(ring), on_error, ..settings.clone() };
            let spare = (settings.prefetch + settings.held) as u64 - 1;
            let (_, error, outcome, _) = keep(&settings, world, lends, |index, last| index + spare > last);
            assert_eq!((error, outcome.end), (None, End::Finished), "{settings:?}");
        }
    });
}

#[test]
fn keeping_one_old_batch_for_ever_stops_nothing() {
    for order in [Order::Plan, Order::Completion] {
        for lanes in [1, 5, 64] {
            for lends in [true, false] {
                let settings = Settings { order, lanes, ..Settings::new(400, 4, SLOT_BYTES) };
                let (count, error, outcome, _) = keep(&settings, WORLD, lends, |index, last| index == 5 || index == last);
                assert_eq!((count, error, outcome.end), (100, None, End::Finished));
                assert_eq!(outcome.lent_batches > 0, lends);
            }
        }
    }
}

#[test]
fn a_ring_that_is_all_with_the_consumer_is_an_error() {
    for order in [Order::Plan, Order::Completion] {
        let settings = Settings { order, ring: Some(12), ..Settings::new(400, 4, SLOT_BYTES) };
        let (count, error, _, _) = keep(&settings, WORLD, true, |_, _| true);
        assert_eq!((count, error), (3, Some(Error::Held { batches: 3, oldest: 0 })));
    }
}
