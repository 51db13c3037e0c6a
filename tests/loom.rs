//! What passes between threads, under every interleaving that loom can think of.
//!
//! ```text
//! CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg towtank_loom" cargo test --release --test loom
//! ```
//!
//! A lost wake shows as a deadlock, a lost or doubled answer as a failed assertion, and two threads at one slot as a race that loom
//! reports. The mutants at the end each break one rule of the protocol, and must be caught.
#![cfg(towtank_loom)]

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize as Plain, Ordering::SeqCst},
    },
    task::Poll,
};

use loom::{future::block_on, model::Builder, thread};
use towtank::{
    machine::{Slot, slab},
    sync::{GivenUp, Handoff, JobQueue, Leaf, Party, TryRecvError, TrySendError, mailbox},
};

const NEVER: usize = usize::MAX;

/// Explores a model. Three preemptions are where loom finds what there is to find in models this small.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn join<const N: usize, T>(threads: [thread::JoinHandle<T>; N]) {
    for thread in threads {
        thread.join().expect("a panic would have ended the model");
    }
}

/// Awaits `count` answers and returns them with the number of times it looked.
fn gather(handoff: &Handoff<usize>, count: usize) -> (Vec<usize>, usize) {
    let (mut all, mut drains, mut new) = (Vec::new(), 0, Vec::new());
    block_on(poll_fn(|cx| {
        handoff.drain(cx, &mut new);
        drains += 1;
        all.append(&mut new);
        if all.len() >= count { Poll::Ready(()) } else { Poll::Pending }
    }));
    all.sort_unstable();
    (all, drains)
}

#[test]
fn every_eager_answer_arrives_and_one_wake_serves_a_burst() {
    explore(|| {
        let handoff = Arc::new(Handoff::new(1, u64::MAX));
        let wakes = Arc::new(Plain::new(0));
        let push = |answer: usize| {
            let (handoff, wakes) = (handoff.clone(), wakes.clone());
            thread::spawn(move || {
                if handoff.push(answer, 0, || false) {
                    wakes.fetch_add(1, SeqCst);
                }
            })
        };
        let threads = [push(0), push(1)];
        let (answers, drains) = gather(&handoff, 2);
        assert_eq!(answers, [0, 1]);
        join(threads);
        assert!(wakes.load(SeqCst) <= drains, "{wakes:?} wakes for {drains} drains");
    });
}

#[test]
fn a_burst_wakes_for_all_that_waits() {
    explore(|| {
        let handoff = Arc::new(Handoff::new(2, u64::MAX));
        let pushing = handoff.clone();
        let thread = thread::spawn(move || {
            // Wherever the scheduler takes something in between, some two of these are a burst.
            (0..3).filter(|answer| pushing.push(*answer, 0, || false)).count()
        });
        let (answers, _) = gather(&handoff, 2);
        assert!(answers.starts_with(&[0, 1]), "{answers:?}");
        thread.join().unwrap();
    });
}

#[test]
fn an_old_answer_is_woken_for_by_the_next() {
    explore(|| {
        let handoff = Arc::new(Handoff::new(NEVER, 10));
        let pushing = handoff.clone();
        let thread = thread::spawn(move || {
            pushing.push(0, 0, || false);
            // The scheduler may have taken the first meanwhile, so that this one is young: then its successor wakes.
            pushing.push(1, 10, || false);
            pushing.push(2, 20, || false)
        });
        let (answers, _) = gather(&handoff, 2);
        assert!(answers.starts_with(&[0, 1]), "{answers:?}");
        thread.join().unwrap();
    });
}

#[test]
fn an_answer_below_every_limit_is_noticed_once_the_scheduler_gets_eager() {
    explore(|| {
        let handoff = Arc::new(Handoff::new(NEVER, u64::MAX));
        let pushing = handoff.clone();
        let thread = thread::spawn(move || pushing.push(7, 0, || false));
        let mut new = Vec::new();
        let mut asked = false;
        block_on(poll_fn(|cx| {
            handoff.drain(cx, &mut new);
            if !new.is_empty() {
                return Poll::Ready(());
            }
            if !asked {
                asked = true;
                handoff.set_eager(true);
            }
            Poll::Pending
        }));
        assert_eq!(new, [7]);
        thread.join().unwrap();
    });
}

/// Two threads run two jobs to their ends; the queue is dry when none is left. `look` says when a thread looks at the queue.
fn drain_a_pool(look: fn(&JobQueue<usize>, &Handoff<usize>, usize)) {
    let queue = Arc::new(JobQueue::new());
    let handoff = Arc::new(Handoff::new(NEVER, u64::MAX));
    (0..2).for_each(|job| assert!(queue.push(job).is_ok()));
    let work = || {
        let (queue, handoff) = (queue.clone(), handoff.clone());
        thread::spawn(move || look(&queue, &handoff, queue.pop().expect("a job for each")))
    };
    let threads = [work(), work()];
    assert_eq!(gather(&handoff, 2).0, [0, 1]);
    join(threads);
}

#[test]
fn the_last_answer_of_a_dry_pool_wakes() {
    explore(|| {
        drain_a_pool(|queue, handoff, job| {
            handoff.push(job, 0, || queue.queued() < 1);
        });
    });
}

#[test]
fn every_job_of_a_queue_is_run_or_given_back() {
    explore(|| {
        let queue = Arc::new(JobQueue::new());
        let run = Arc::new(Plain::new(0));
        let work = || {
            let (queue, run) = (queue.clone(), run.clone());
            thread::spawn(move || {
                while queue.pop().is_some() {
                    run.fetch_add(1, SeqCst);
                }
            })
        };
        let threads = [work(), work()];
        (0..2).for_each(|job| assert!(queue.push(job).is_ok()));
        let left = queue.close().len();
        join(threads);
        assert_eq!(run.load(SeqCst) + left, 2);
        assert_eq!(queue.push(9), Err(9));
    });
}

#[test]
fn sleeping_threads_are_woken_for_jobs() {
    explore(|| {
        let queue = Arc::new(JobQueue::new());
        let work = || {
            let queue = queue.clone();
            thread::spawn(move || queue.pop())
        };
        let threads = [work(), work()];
        (0..2).for_each(|job| assert!(queue.push(job).is_ok()));
        let mut got = threads.map(|t| t.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [Some(0), Some(1)]);
    });
}

/// Counts its drops, outside of loom's sight.
struct Counted(Arc<Plain>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_leaf_given_up_is_removed_or_brings_news_exactly_once_and_drops_what_it_owns() {
    explore(|| {
        let drops = Arc::new(Plain::new(0));
        let leaf = Arc::new(Leaf::<Counted, Counted>::new(Counted(drops.clone())));
        let handoff = Arc::new(Handoff::new(1, u64::MAX));
        let (running, telling) = (leaf.clone(), handoff.clone());
        let thread = thread::spawn(move || {
            let Some(job) = running.begin(3) else { return false };
            drop(running.answer(job));
            telling.push(0, 0, || false);
            true
        });
        let fate = leaf.give_up();
        match fate {
            GivenUp::Removed => assert_eq!(drops.load(SeqCst), 1, "it is dropped at once"),
            GivenUp::Running(since) => {
                assert_eq!(since, 3);
                gather(&handoff, 1);
            }
            GivenUp::Ended => {
                gather(&handoff, 1);
            }
        }
        assert_eq!(drops.load(SeqCst), 1, "{fate:?}");
        assert_eq!(thread.join().unwrap(), fate != GivenUp::Removed);
    });
}

#[test]
fn a_leaf_that_moves_on_to_another_thread_is_given_up_cleanly_at_any_point() {
    explore(|| {
        let drops = Arc::new(Plain::new(0));
        let leaf = Arc::new(Leaf::<Counted, Counted>::new(Counted(drops.clone())));
        let queue = Arc::new(JobQueue::new());
        let (moving, next) = (leaf.clone(), queue.clone());
        let first = thread::spawn(move || {
            let Some(job) = moving.begin(1) else { return false };
            let unwanted = moving.put_back(job);
            if unwanted.is_none() {
                assert!(next.push(moving).is_ok());
            }
            unwanted.is_some()
        });
        let fate = leaf.give_up();
        let told = first.join().unwrap();
        // What the second thread would find.
        for leaf in queue.close() {
            assert!(leaf.begin(2).is_none(), "it was given up");
        }
        assert_eq!(told, fate == GivenUp::Running(1), "{fate:?}");
        assert_eq!(drops.load(SeqCst), 1);
    });
}

#[test]
fn a_slot_travels_through_a_job_and_back() {
    explore(|| {
        let mut slots = slab::<u8>(2, 4).expect("8 bytes");
        let (other, mut mine) = (slots.pop().expect("two"), slots.pop().expect("two"));
        mine.get_mut().fill(1);
        let leaf = Arc::new(Leaf::<Slot<u8>, Slot<u8>>::new(mine));
        let queue = Arc::new(JobQueue::new());
        let handoff = Arc::new(Handoff::new(1, u64::MAX));
        assert!(queue.push(leaf.clone()).is_ok());
        let (jobs, telling) = (queue.clone(), handoff.clone());
        let thread = thread::spawn(move || {
            let leaf = jobs.pop().expect("a job");
            let mut slot = leaf.begin(0).expect("nobody gives it up");
            slot.get_mut().fill(2);
            assert!(leaf.answer(slot).is_none());
            telling.push(0, 0, || false);
        });
        assert_eq!(other.get(), [0; 4], "its neighbour is read meanwhile");
        gather(&handoff, 1);
        let mut back = leaf.take().expect("the answer comes before its news");
        assert_eq!(back.get(), [2; 4]);
        back.get_mut().fill(3);
        thread.join().unwrap();
    });
}

#[test]
fn a_mailbox_hands_over_in_order_and_tells_both_ends_of_the_end() {
    explore(|| {
        let (sender, receiver) = mailbox(1);
        let thread = thread::spawn(move || {
            block_on(async {
                for item in 0..2 {
                    sender.send(item).await.expect("the receiver stays");
                }
            });
        });
        let got = std::iter::from_fn(|| receiver.recv()).collect::<Vec<_>>();
        assert_eq!(got, [0, 1]);
        thread.join().unwrap();
    });
}

#[test]
fn an_awaiting_receiver_is_woken_by_an_item_and_by_the_end() {
    explore(|| {
        let (sender, receiver) = mailbox(2);
        let thread = thread::spawn(move || sender.try_send(5).expect("there is space"));
        assert_eq!(block_on(receiver.recv_async()), Some(5));
        assert_eq!(block_on(receiver.recv_async()), None);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        thread.join().unwrap();
    });
}

#[test]
fn a_receiver_that_leaves_loses_no_item_and_wakes_the_sender() {
    explore(|| {
        let drops = Arc::new(Plain::new(0));
        let (sender, receiver) = mailbox(1);
        let thread = thread::spawn(move || drop(receiver));
        let came_back = matches!(sender.try_send(Counted(drops.clone())), Err(TrySendError::Closed(_)));
        block_on(sender.closed());
        thread.join().unwrap();
        assert_eq!(drops.load(SeqCst), 1, "it came back: {came_back}");
    });
}

/// Parties that meet so often each and then go, each on a thread of its own but the last, which stays here. None passes a meeting before all
/// who come to it have.
fn meet<const N: usize>(often: [u64; N]) {
    let came = Arc::new([(); N].map(|()| Plain::new(0)));
    let parties = Party::of(N as u32).into_iter().enumerate().map(|(who, mut party)| {
        let came = came.clone();
        move || {
            for step in 0..often[who] {
                came[who].fetch_add(1, SeqCst);
                assert_eq!(party.meet(), step);
                let others = came.iter().zip(often).filter(|(_, often)| *often > step);
                assert!(others.into_iter().all(|(came, _)| came.load(SeqCst) as u64 > step), "all have come to meeting {step}");
            }
        }
    });
    let mut parties = parties.collect::<Vec<_>>();
    let mut here = parties.pop().expect("there is one");
    let threads: Vec<_> = parties.into_iter().map(thread::spawn).collect();
    here();
    threads.into_iter().for_each(|thread| thread.join().expect("a panic would have ended the model"));
}

#[test]
fn parties_pass_a_meeting_when_all_have_come() {
    explore(|| meet([2, 2]));
    explore(|| meet([1, 1, 1]));
}

#[test]
fn a_party_that_goes_wakes_whoever_waits_for_it() {
    explore(|| meet([1, 2]));
    explore(|| meet([0, 1, 1]));
}

/// Each mutant runs in a process of its own, since a failing model aborts.
#[test]
fn every_mutant_is_caught() {
    for (mutant, words) in [
        ("mutant_a_thread_that_looks_at_the_queue_before_it_has_the_lock_is_overtaken", "deadlock"),
        ("mutant_a_scheduler_that_looks_first_and_registers_later_sleeps_for_ever", "deadlock"),
        ("mutant_news_before_the_answer_finds_nothing", "the answer comes before its news"),
        ("mutant_a_party_that_goes_without_a_word_is_waited_for", "deadlock"),
    ] {
        let this = std::env::current_exe().expect("a test is a program");
        let run = std::process::Command::new(this).args([mutant, "--exact", "--ignored", "--nocapture"]).output();
        let run = run.expect("it runs");
        let said = [run.stdout, run.stderr].map(|out| String::from_utf8_lossy(&out).into_owned()).concat();
        assert!(!run.status.success() && said.contains("running 1 test") && said.contains(words), "{mutant} survived:\n{said}");
    }
}

#[test]
#[ignore = "it must fail, as `every_mutant_is_caught` checks"]
fn mutant_a_thread_that_looks_at_the_queue_before_it_has_the_lock_is_overtaken() {
    explore(|| {
        drain_a_pool(|queue, handoff, job| {
            let dry = queue.queued() < 1;
            handoff.push(job, 0, || dry);
        });
    });
}

#[test]
#[ignore = "it must fail, as `every_mutant_is_caught` checks"]
fn mutant_a_scheduler_that_looks_first_and_registers_later_sleeps_for_ever() {
    explore(|| {
        let handoff = Arc::new(Handoff::new(1, u64::MAX));
        let pushing = handoff.clone();
        thread::spawn(move || pushing.push(7, 0, || false));
        let mut new = Vec::new();
        block_on(poll_fn(|cx| {
            // Looks under one hold of the lock, with a waker that wakes nobody, and registers under the next without looking.
            handoff.drain(&std::task::Context::from_waker(std::task::Waker::noop()), &mut new);
            if !new.is_empty() {
                return Poll::Ready(());
            }
            handoff.drain(cx, &mut Vec::new());
            Poll::Pending
        }));
    });
}

#[test]
#[ignore = "it must fail, as `every_mutant_is_caught` checks"]
fn mutant_news_before_the_answer_finds_nothing() {
    explore(|| {
        let leaf = Arc::new(Leaf::<u8, u8>::new(1));
        let handoff = Arc::new(Handoff::new(1, u64::MAX));
        let (running, telling) = (leaf.clone(), handoff.clone());
        thread::spawn(move || {
            let job = running.begin(0).expect("nobody gives it up");
            telling.push(0, 0, || false);
            running.answer(job);
        });
        gather(&handoff, 1);
        leaf.take().expect("the answer comes before its news");
    });
}

#[test]
#[ignore = "it must fail, as `every_mutant_is_caught` checks"]
fn mutant_a_party_that_goes_without_a_word_is_waited_for() {
    explore(|| {
        let mut parties = Party::of(2);
        let quiet = parties.pop();
        let mut waits = parties.pop().expect("there are two");
        let thread = thread::spawn(move || waits.meet());
        std::mem::forget(quiet);
        thread.join().expect("a panic would have ended the model");
    });
}
