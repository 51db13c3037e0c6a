//! Failures of samples, of the machine and of user code.

use std::time::Duration;

use towtank::{
    failure::{Failure, FailureKind},
    loader::{
        Allowance, End, Error, OnError, Order, Retries, Settings, Stage, Tail,
        stage::{Context, Cpu, Deadline, Limit, Retry, Then},
    },
    machine::{Item, Machine, Tags, Time, Work},
    trace::StageId,
};

use crate::{
    content::{Case, case, clean, machine},
    paused,
    scenario::{Consumer, consume, load, load_world},
    world::{Decode, Expected, Read, SLOT_BYTES, Source, World, oracle, share},
};

const SOUND: World = World { seed: 1, fetch_ms: 20, decode_ms: 20, bad_reads: 0, bad_decodes: 0 };

#[test]
fn the_first_failure_comes_in_its_place_after_every_batch_before_it() {
    let mut failed = 0;
    for seed in 5000..5200 {
        let _case = Case(seed);
        let Some((mut settings, world)) = case(seed) else { continue };
        settings.on_error = OnError::Fail;
        let run =
            paused::run::<Tags, _, _>(machine(seed), |machine| load_world(machine, settings.clone(), world, Consumer::EAGER));
        let (seen, outcome) = run.value;
        clean(&settings, &outcome);
        assert_eq!(run.left, (0, 0));
        let bad = oracle(&settings, &world).skipped;
        let Some(first) = bad.first() else {
            assert_eq!(outcome.end, End::Finished);
            continue;
        };
        failed += 1;
        let Some(Error::Sample { item, .. }) = &seen.error else { panic!("{:?}", seen.error) };
        assert_eq!(outcome.end, End::Failed(seen.error.clone().expect("an error")));
        if settings.order == Order::Plan {
            assert_eq!(item, first);
            // Whole batches of what comes before it, and whole epochs.
            let before = Settings { epochs: first.epoch + 1, ..settings.clone() };
            let sound = World { bad_reads: 0, bad_decodes: 0, ..world };
            let full = |b: &&Expected| b.epoch < first.epoch || b.positions.iter().all(|p| p < &first.position);
            let expected: Vec<_> = oracle(&before, &sound).batches.iter().take_while(full).cloned().collect();
            assert_eq!(seen.batches, expected);
        } else {
            assert!(world.bad(*item));
        }
    }
    assert!(failed > 60, "{failed}");
}

#[test]
fn one_failure_too_many_in_an_epoch_ends_it() {
    let world = World { bad_reads: 100, ..SOUND };
    for allowed in 0..12 {
        let settings = Settings {
            epochs: 3,
            shuffle: Some(9),
            on_error: OnError::Skip { at_most: Allowance::Count(allowed) },
            ..Settings::new(100, 4, SLOT_BYTES)
        };
        let bad: Vec<Item> = share(&settings, 0).into_iter().filter(|item| world.bad(*item)).collect();
        let run = paused::run::<Tags, _, _>(machine(1), |machine| load_world(machine, settings.clone(), world, Consumer::EAGER));
        let (seen, outcome) = run.value;
        match bad.get(allowed as usize) {
            Some(last) => {
                let Some(Error::TooManySkipped { item, allowed: of, .. }) = seen.error else { panic!("{:?}", seen.error) };
                assert_eq!((&item, of), (last, allowed));
                assert_eq!(outcome.accounts.reasons[FailureKind::NotFound.code() as usize], outcome.accounts.skipped);
            }
            // The allowance is an epoch's: bad samples come again in every one.
            None => assert_eq!(seen.error, None),
        }
        clean(&settings, &outcome);
    }
}

#[test]
fn whoever_leaves_is_told_in_the_end_of_what_no_batch_told() {
    let world = World { bad_reads: 300, ..SOUND };
    let mut unreported = 0;
    for leaves_after in 1..20 {
        let settings = Settings {
            prefetch: 4,
            lanes: 16,
            on_error: OnError::Skip { at_most: Allowance::ANY },
            ..Settings::new(100, 3, SLOT_BYTES)
        };
        let consumer = Consumer { leaves_after, step_ms: 50 };
        let run = paused::run::<Tags, _, _>(machine(1), |machine| load_world(machine, settings.clone(), world, consumer));
        let (seen, outcome) = run.value;
        clean(&settings, &outcome);
        assert_eq!((seen.skipped.len() + outcome.unreported.len()) as u64, outcome.accounts.skipped, "after {leaves_after}");
        unreported += outcome.unreported.len();
    }
    assert!(unreported > 50, "{unreported}: batches were on their way");
}

#[test]
fn a_fraction_allows_that_part_of_an_epoch() {
    let world = World { bad_reads: 100, ..SOUND };
    let settings = Settings { ..Settings::new(100, 4, SLOT_BYTES) };
    let bad = share(&settings, 0).iter().filter(|item| world.bad(**item)).count();
    for (fraction, fails) in [(bad as f64 / 100.0 + 0.001, false), (bad as f64 / 100.0 - 0.009, true)] {
        let settings = Settings { on_error: OnError::Skip { at_most: Allowance::Fraction(fraction) }, ..settings.clone() };
        let run = paused::run::<Tags, _, _>(machine(1), |machine| load_world(machine, settings, world, Consumer::EAGER));
        assert_eq!(run.value.0.error.is_some(), fails, "{bad} bad samples, {fraction}");
    }
}

#[test]
fn ranks_deliver_the_same_number_of_batches_though_samples_fail() {
    let world = World { bad_reads: 300, ..SOUND };
    for tail in [Tail::Pad, Tail::Drop] {
        let counts: Vec<_> = (0..3)
            .map(|rank| {
                let settings = Settings {
                    rank,
                    world: 3,
                    tail,
                    epochs: 2,
                    on_error: OnError::Skip { at_most: Allowance::ANY },
                    ..Settings::new(100, 4, SLOT_BYTES)
                };
                let run = paused::run::<Tags, _, _>(machine(1), |machine| load_world(machine, settings, world, Consumer::EAGER));
                run.value.0.batches.len()
            })
            .collect();
        assert!(counts.iter().all(|count| *count == 2 * 9), "{tail:?}: {counts:?}");
    }
}

#[test]
fn a_copy_that_fails_ends_it_after_the_batches_before_it() {
    for copies in 1..4 {
        let settings = Settings { copies, prefetch: 4, ..Settings::new(100, 4, SLOT_BYTES) };
        let config = paused::Config { failing_copy: Some(5), lends_slots: false, engines: 3, copy_ms: 7, ..machine(1) };
        let run = paused::run::<Tags, _, _>(config, |machine| load_world(machine, settings, SOUND, Consumer::EAGER));
        let (seen, outcome) = run.value;
        assert_eq!(seen.batches.len(), 5);
        assert_eq!(seen.error, Some(Error::Fatal(Failure::new(FailureKind::Device, "the copy fails"))));
        assert_eq!((outcome.slots.given_up, outcome.slots.home), (4, outcome.slots.ring - 4));
        assert!(outcome.accounts.balanced());
        assert_eq!(run.left, (0, 0));
    }
}

#[test]
fn a_machine_without_memory_says_so() {
    let config = paused::Config { memory_samples: 20, ..machine(1) };
    let settings = Settings::new(100, 4, SLOT_BYTES);
    let run = paused::run::<Tags, _, _>(config, |machine| load_world(machine, settings, SOUND, Consumer::EAGER));
    let (seen, outcome) = run.value;
    assert_eq!(seen.error, Some(Error::Fatal(Failure::new(FailureKind::TooLarge, "no memory left"))));
    assert_eq!((outcome.accounts.planned, run.left), (0, (0, 0)));
}

/// A stage that does something odd with one sample.
#[derive(Clone, Copy)]
struct Odd<F>(u64, F);

impl<M: Machine, F: Fn(&Context<'_, M>) -> Oddity> Stage<M, Read> for Odd<F> {
    type Out = Read;

    async fn run(&self, cx: &Context<'_, M>, read: Read) -> Result<Read, Failure> {
        if cx.item().sample == self.0 {
            match (self.1)(cx) {
                Oddity::Hang => std::future::pending().await,
                Oddity::Fail(kind) => return Err(Failure::new(kind, "odd")),
                Oddity::Pass => {}
            }
        }
        Ok(read)
    }
}

enum Oddity {
    Hang,
    Fail(FailureKind),
    Pass,
}

fn skipping() -> Settings {
    Settings { on_error: OnError::Skip { at_most: Allowance::ANY }, ..Settings::new(40, 4, SLOT_BYTES) }
}

#[test]
fn a_read_that_hangs_is_given_up_at_its_deadline_and_tried_again() {
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        let once = Then(Source(SOUND), Odd(7, |_: &Context<'_, _>| Oddity::Hang));
        let retries = Retries { at_most: 2, base: Duration::from_millis(100), cap: Duration::from_secs(1) };
        let stages = Retry::new(StageId::FETCH, retries, Limit::new(4, Deadline::new(Duration::from_millis(500), once)));
        load(machine, skipping(), stages, Decode(SOUND), |machine, batches| consume(machine, batches, Consumer::EAGER))
    });
    let (seen, outcome) = run.value;
    assert_eq!(outcome.end, End::Finished);
    assert_eq!(seen.skipped.iter().map(|(item, kind)| (item.sample, *kind)).collect::<Vec<_>>(), [(7, FailureKind::Deadline)]);
    assert_eq!(outcome.retries, 2);
    assert!(run.end > Time(3 * 500_000_000), "three tries of half a second");
}

#[test]
fn a_failure_that_passes_costs_a_retry_and_nothing_else() {
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        let flaky = |cx: &Context<'_, _>| match cx.attempt() {
            0 => Oddity::Fail(FailureKind::Transient),
            1 => Oddity::Fail(FailureKind::Throttled),
            _ => Oddity::Pass,
        };
        let stages = Retry::new(StageId::FETCH, Retries::default(), Then(Source(SOUND), Odd(7, flaky)));
        let settings = Settings { on_error: OnError::Fail, ..skipping() };
        load(machine, settings, stages, Decode(SOUND), |machine, batches| consume(machine, batches, Consumer::EAGER))
    });
    let (seen, outcome) = run.value;
    assert_eq!((seen.error, outcome.accounts.delivered, outcome.retries), (None, 40, 2));
}

#[test]
fn a_failure_that_does_not_pass_is_not_retried() {
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        let missing = |_: &Context<'_, _>| Oddity::Fail(FailureKind::NotFound);
        let stages = Retry::new(StageId::FETCH, Retries::default(), Then(Source(SOUND), Odd(7, missing)));
        load(machine, skipping(), stages, Decode(SOUND), |machine, batches| consume(machine, batches, Consumer::EAGER))
    });
    assert_eq!((run.value.1.retries, run.value.1.accounts.skipped), (0, 1));
}

#[test]
fn a_job_past_its_deadline_ends_the_loader() {
    // In a user's stage under a deadline.
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        let cost = |item: Item, _: &Read| Work { kind: "odd", bytes: if item.sample == 7 { 10_000 } else { 1 }, pixels: 0 };
        let odd = Cpu::new(StageId::user(0), "odd", cost, |_: Item, read: Read| Ok(read));
        let stages = Then(Source(SOUND), Deadline::new(Duration::from_secs(2), odd));
        load(machine, skipping(), stages, Decode(SOUND), |machine, batches| consume(machine, batches, Consumer::EAGER))
    });
    let (seen, outcome) = run.value;
    let Some(Error::Fatal(failure)) = seen.error else { panic!("{:?}", seen.error) };
    assert_eq!((failure.kind, failure.message.as_ref()), (FailureKind::Lost, "a CPU job did not end within 2s"));
    assert_eq!((run.left, outcome.memory.reserved_bytes), ((0, 0), 0));

    // In decoding.
    let stuck = World { decode_ms: 1_000_000, ..SOUND };
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        let settings = Settings { decode_deadline: Some(Duration::from_secs(8)), ..skipping() };
        load_world(machine, settings, stuck, Consumer::EAGER)
    });
    let (seen, _) = run.value;
    let Some(Error::Fatal(failure)) = seen.error else { panic!("{:?}", seen.error) };
    assert_eq!((failure.kind, failure.message.as_ref()), (FailureKind::Lost, "a decode job did not end within 8s"));
    assert!((Time(8_000_000_000)..Time(9_100_000_000)).contains(&seen.end), "{}", seen.end);
}

#[test]
fn a_stage_that_panics_on_the_schedulers_thread_ends_the_loader_with_an_error() {
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        // Not `panic!`, which would print. A panic of this kind is one too.
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {}
        }
        let bomb = |_: &Context<'_, _>| -> Oddity {
            let _bomb = Bomb;
            std::panic::resume_unwind(Box::new("a bug"))
        };
        let stages = Then(Source(SOUND), Odd(7, bomb));
        load(machine, skipping(), stages, Decode(SOUND), |machine, batches| consume(machine, batches, Consumer::EAGER))
    });
    let (seen, _) = run.value;
    let Some(Error::Fatal(failure)) = seen.error else { panic!("{:?}", seen.error) };
    assert_eq!(failure.kind, FailureKind::Lost);
}

#[test]
fn a_sample_that_cannot_fit_is_left_out_by_name() {
    let run = paused::run::<Tags, _, _>(machine(1), |machine| {
        let settings = Settings { sample_bytes: 50, ..skipping() };
        load_world(machine, settings, SOUND, Consumer::EAGER)
    });
    // The bound is too low, so the ledger goes beyond it: counted, never stuck.
    let (_, outcome) = run.value;
    assert_eq!((outcome.end, outcome.accounts.delivered), (End::Finished, 40));
}
