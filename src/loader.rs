//! The loader: one code for both machines.
//!
//! ```text
//!            ┌── lane ──┐
//!  plan ───▶ │  ticket  │   draws: launch, and in plan order its sequence number
//!            │  stages  │   read, user stages: leaves of the machine
//!            │  fill    │   a CPU job that writes the sample into its slot
//!            └─ resolve ┘
//!                 ▼
//!   ring of slots ─▶ assembly ─▶ transfer ─▶ stage on ─▶ channel ─▶ consumer
//!   in sequence      the next     lend, or    the device,  in order,    │
//!   order            B successes  copy        if any       any thread   │
//!         ▲                                                             │
//!         └────────────── slots, device batches, stamps ────────────────┘
//! ```
//!
//! [`run`] is that picture on any [`Machine`]; [`channel`] makes its two ends. It never reads a clock, spawns, sleeps, draws or
//! touches a file except through the machine. All control is on one thread and holds no locks; leaves take time.
//!
//! What it promises, under any timing:
//!
//! - **Order.** A batch is the next `B` successes in sequence order, within an epoch. In plan order that is a function of the plan
//!   and of which samples failed. See [`Order`].
//! - **Errors.** The error that ends a run comes once, after every batch before it. Under [`OnError::Skip`] failures are counted by reason
//!   and come with the batch.
//! - **Memory.** Ring, device batches and encoded bytes in flight stay within one budget. A budget that cannot do is refused by
//!   [`Settings::resolve`].
//! - **Progress.** No setting that is accepted, and no consumer, makes it hang; a consumer that waits for itself is told
//!   ([`Error::Held`]).
//! - **Stop.** Dropping [`Batches`] ends everything; [`Batches::close`] waits for that and returns the books ([`Outcome`]).
//! - **State.** Every batch carries the [`State`] after it, from which a run goes on exactly, on any number of ranks.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::Arc};

use crate::{
    machine::{Machine, Unit},
    trace::{Event, Kind, StageId},
};

mod assembly;
mod batch;
mod builder;
mod channel;
mod control;
pub mod dlpack;
mod errand;
mod error;
mod image;
mod lane;
mod ledger;
mod line;
mod marks;
mod outcome;
mod outgoing;
mod parcel;
mod permutation;
mod plan;
mod ranks;
mod ring;
mod settings;
pub mod stage;
mod staging;
mod state;
mod transfer;
mod waiters;

pub use batch::Batch;
pub use builder::{
    After, Builder, FillWith, Images, Last, Loader, Map, OnDevice, RankLoader, Read, RunError, Running, RunningRanks, StartError,
    Steps, launch, launch_ranks,
};
pub use channel::{Batches, Sender, channel};
pub use error::Error;
pub use image::DecodeImage;
pub use marks::{Marks, Missing};
pub use outcome::{Accounts, End, Memory, Outcome, Skipped, Slots};
pub use permutation::{Permutation, SAMPLES_MAX, TABLE_MAX};
pub use plan::{Cursor, EpochPlan, Plan, Shape};
pub(crate) use ranks::all_ranks;
pub use settings::{
    Allowance, DeviceStage, LARGEST_COUNT, LARGEST_DATASET, OnError, Order, Resolved, Retries, Settings, SettingsError, Tail,
};
pub use stage::{Fill, Stage};
pub use state::{State, StateError};

use control::{Closed, Control};
use lane::Way;
use outgoing::{Outgoing, Remains};
use stage::{BatchStage, Permits};
use staging::Staging;
use transfer::Copies;

/// Runs a loader on `machine`: every sample of the plan goes through `stages` and `fill` into its slot, and batches go to the other end
/// of `sender`.
///
/// It completes when the consumer has seen the end, or an error, or has left; nothing of the loader is running then, and all memory is
/// free that the consumer does not hold. The books are returned, and left for [`Batches::close`] too.
///
/// Dropping the future stops everything as well, without waiting; the consumer then gets [`Error::Lost`].
pub async fn run<M, S, F>(machine: M, resolved: Resolved, stages: S, fill: F, sender: Sender<M::DeviceBatch, Unit<M>>) -> Outcome
where
    M: Machine,
    S: Stage<M, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<M::Payload, S::Out>,
{
    run_staged(machine, resolved, stages, fill, None, sender).await
}

/// The same with a stage on the device, through which every batch that has samples goes before the consumer gets it: where the settings
/// [tell of one](Settings::device_stage).
///
/// # Panics
///
/// When the settings tell of one and there is none, or the other way round.
pub async fn run_staged<M, S, F>(
    machine: M,
    resolved: Resolved,
    stages: S,
    fill: F,
    on_device: Option<Arc<dyn BatchStage<M::DeviceBatch>>>,
    sender: Sender<M::DeviceBatch, Unit<M>>,
) -> Outcome
where
    M: Machine,
    S: Stage<M, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<M::Payload, S::Out>,
{
    assert_eq!(on_device.is_some(), resolved.settings.device_stage.is_some(), "the settings tell of a stage on the device");
    let settings = &resolved.settings;
    stages.enter(&machine);

    // A machine that lends copies seldom, so its device batches are made when they are first needed.
    let at_once = if resolved.lends(machine.lends_slots()) { 0 } else { resolved.device_batches };
    let memory = machine.slots(resolved.ring, settings.slot_bytes).and_then(|slots| {
        let batches = (0..at_once).map(|_| machine.device_batch(settings.batch, settings.slot_bytes)).collect::<Result<_, _>>();
        batches.map(|batches| (slots, batches))
    });
    let (slots, device_batches, missing) = match memory {
        Ok((slots, batches)) => (slots, batches, None),
        Err(failure) => (Vec::new(), Vec::new(), Some(failure)),
    };

    let ring = slots.len();
    let control = Rc::new(Control::new(machine.clone(), &resolved, slots));
    let lanes = if missing.is_some() { 0 } else { settings.lanes };
    let way = Rc::new(Way {
        control: control.clone(),
        stages,
        fill: Arc::new(fill),
        decode_permits: settings.decode_limit.map(|most| Permits::watched(&machine, "decode", most)),
        sample_bytes: settings.sample_bytes,
        ledger_bytes: resolved.ledger_bytes,
        submitted: settings.decode_deadline.map_or(Vec::new(), |_| (0..lanes).map(|_| Cell::new(None)).collect()),
    });
    // Kept to the end, since machines forget what nobody else keeps.
    let batches = sender.standing();
    machine.watch(control.clone());
    machine.watch(control.ledger.clone());
    machine.watch(batches.clone());
    let copies = Rc::new(Copies::new());
    // More than there are batches would have nothing to do.
    let copiers: Vec<M::Task> = (0..settings.copies.min(resolved.device_batches))
        .map(|_| machine.spawn("copy", transfer::work(copies.clone(), control.clone())))
        .collect();
    let on_device = on_device.zip(settings.device_stage).map(|(stage, DeviceStage { limit, .. })| {
        let (name, staging) = (stage.name(), Staging::new(stage));
        let stagers = (0..limit.min(resolved.device_batches)).map(|_| machine.spawn(name, staging.clone().work(control.clone())));
        (stagers.collect::<Vec<M::Task>>(), staging)
    });
    let (stagers, staging) = on_device.unzip();
    let mut tasks: Vec<M::Task> = (0..lanes).map(|lane| machine.spawn("lane", way.clone().lane(lane))).collect();
    if let Some(within) = settings.decode_deadline {
        tasks.push(machine.spawn("deadline", way.clone().watch_jobs(within)));
    }
    if let Some(failure) = missing {
        control.fatal(failure);
    }

    let mut outgoing = Outgoing::new(control.clone(), copies, staging, sender, tasks, &resolved, device_batches);
    let end = poll_fn(|cx| outgoing.poll(cx)).await;
    outgoing.stop();
    drop((copiers, stagers));
    machine.quiesce().await;

    let (Remains { in_flight, slots_lent, slots_given_up, lent_batches, mut unreported, state }, sender) = outgoing.close();
    let Closed { mut accounts, slots_home, unreported: mut later, flushes } = control.close();
    unreported.append(&mut later);
    accounts.in_flight += in_flight;
    debug_assert!(accounts.balanced(), "{accounts}");
    // What is not at home and not with the consumer went with a copy, or is with a stuck job that the machine no longer waits for.
    debug_assert!(slots_home + slots_lent + slots_given_up <= ring, "a slot is in one place");
    let slots_given_up = ring - slots_home - slots_lent;
    let balance = control.ledger.balance();
    let outcome = Outcome {
        accounts,
        memory: Memory {
            fixed_bytes: resolved.fixed_bytes,
            peak_reserved_bytes: balance.peak_bytes,
            reserved_bytes: balance.reserved_bytes,
            overruns: balance.overruns,
        },
        slots: Slots { ring, home: slots_home, lent: slots_lent, given_up: slots_given_up },
        state,
        unreported,
        flushes,
        lent_batches,
        retries: control.retries.get(),
        end,
    };
    let (time, rank, bytes) = (machine.now(), settings.rank, outcome.end.code());
    machine.record(Event { time, since: time, sample: 0, bytes, epoch: 0, rank, stage: StageId::LOADER, kind: Kind::Stop });
    sender.report(outcome.clone());
    outcome
}
