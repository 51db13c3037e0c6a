//! Tasks, their handles, wakers and sleeps.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, pending, poll_fn},
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Poll, Wake, Waker},
    time::Duration,
};

use proptest::prelude::*;
use towtank::{
    machine::{Machine, Tags, Time},
    sim::{Config, Limits, Outcome, SimMachine, Simulation, StallReason},
};

fn simulate<T: 'static, F: Future<Output = T> + 'static>(root: impl FnOnce(SimMachine<Tags>) -> F) -> Outcome<T> {
    Simulation::<Tags>::new(Config::default()).run(root).expect("it ends")
}

const fn ns(n: u64) -> Duration {
    Duration::from_nanos(n)
}

type Log<T> = Rc<RefCell<Vec<T>>>;

#[test]
fn sleeps_end_at_their_time_and_in_their_order() {
    let log: Log<(u64, u64)> = Rc::default();
    let seen = log.clone();
    let outcome = simulate(|m| async move {
        let tasks: Vec<_> = [30, 10, 20, 10]
            .into_iter()
            .enumerate()
            .map(|(k, d)| {
                let (m, log) = (m.clone(), log.clone());
                m.clone().spawn("sleeper", async move {
                    m.sleep(ns(d)).await;
                    log.borrow_mut().push((m.now().0, k as u64));
                })
            })
            .collect();
        m.sleep(ns(40)).await;
        drop(tasks);
    });
    assert_eq!(*seen.borrow(), [(10, 1), (10, 3), (20, 2), (30, 0)]);
    assert_eq!((outcome.end, outcome.left.tasks), (Time(40), 0));
}

#[test]
fn a_dropped_sleep_moves_no_clock() {
    let outcome = simulate(|m| async move {
        let mut long = Box::pin(m.sleep(Duration::from_secs(3600)));
        poll_fn(|cx| {
            assert!(long.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(long);
        m.sleep(ns(5)).await;
    });
    assert_eq!(outcome.end, Time(5));
}

#[test]
fn a_sleep_counts_from_its_first_poll() {
    let outcome = simulate(|m| async move {
        let later = m.sleep(ns(10));
        m.sleep(ns(100)).await;
        later.await;
    });
    assert_eq!(outcome.end, Time(110));
}

#[test]
fn a_task_spawned_during_a_poll_runs_at_the_same_instant() {
    let outcome = simulate(|m| async move {
        let at = Rc::new(Cell::new(None));
        let (inner, seen) = (m.clone(), at.clone());
        let task = m.spawn("inner", async move { seen.set(Some(inner.now())) });
        m.sleep(ns(0)).await;
        drop(task);
        at.get()
    });
    assert_eq!(outcome.value, Some(Time(0)));
}

/// Tells when it is dropped.
struct Tell(&'static str, Log<&'static str>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

#[test]
fn dropping_a_handle_drops_the_future_before_anything_else_runs() {
    let log: Log<&str> = Rc::default();
    let seen = log.clone();
    simulate(|m| async move {
        let tell = Tell("future", log.clone());
        let task = m.spawn("victim", async move {
            let _tell = tell;
            pending::<()>().await;
        });
        m.sleep(ns(1)).await;
        drop(task);
        log.borrow_mut().push("after the handle");
    });
    assert_eq!(*seen.borrow(), ["future", "after the handle"]);
}

#[test]
fn a_task_that_drops_its_own_handle_ends_with_that_poll() {
    let log: Log<&str> = Rc::default();
    let seen = log.clone();
    let outcome = simulate(|m| async move {
        let own: Rc<RefCell<Option<<SimMachine<Tags> as Machine>::Task>>> = Rc::default();
        let (handle, tell) = (own.clone(), Tell("future", log.clone()));
        *own.borrow_mut() = Some(m.spawn("suicidal", async move {
            let _tell = tell;
            let own = handle.borrow_mut().take();
            drop(own);
            log.borrow_mut().push("still in the poll");
            pending::<()>().await;
        }));
        m.sleep(ns(1)).await;
    });
    assert_eq!(*seen.borrow(), ["still in the poll", "future"]);
    assert_eq!(outcome.left.tasks, 0);
}

#[test]
fn futures_that_stop_each_other_when_dropped_are_dropped_once_each() {
    let log: Log<&str> = Rc::default();
    let seen = log.clone();
    simulate(|m| async move {
        type Handle = Rc<RefCell<Option<<SimMachine<Tags> as Machine>::Task>>>;
        struct StopOther(Handle);
        impl Drop for StopOther {
            fn drop(&mut self) {
                let other = self.0.borrow_mut().take();
                drop(other);
            }
        }
        let (a, b): (Handle, Handle) = Default::default();
        for (name, own, other) in [("a", &a, &b), ("b", &b, &a)] {
            let guard = (StopOther(other.clone()), Tell(name, log.clone()));
            *own.borrow_mut() = Some(m.spawn(name, async move {
                let _guard = guard;
                pending::<()>().await;
            }));
        }
        m.sleep(ns(1)).await;
        let first = a.borrow_mut().take();
        drop(first);
    });
    let mut dropped = seen.borrow().clone();
    dropped.sort_unstable();
    assert_eq!(dropped, ["a", "b"]);
}

#[test]
fn tasks_left_when_the_root_ends_are_counted_and_dropped() {
    let log: Log<&str> = Rc::default();
    let (seen, kept) = (log.clone(), Rc::new(RefCell::new(None)));
    let keep = kept.clone();
    let outcome = simulate(|m| async move {
        let tell = Tell("left", log.clone());
        let task = m.spawn("left", async move {
            let _tell = tell;
            pending::<()>().await;
        });
        m.sleep(ns(1)).await;
        *keep.borrow_mut() = Some(task);
    });
    assert_eq!(outcome.left.tasks, 1);
    assert_eq!(*seen.borrow(), ["left"]);
}

#[test]
fn a_task_spawned_while_the_run_is_torn_down_never_runs() {
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    simulate(|m| async move {
        struct SpawnInDrop(SimMachine<Tags>);
        impl Drop for SpawnInDrop {
            fn drop(&mut self) {
                let task = self.0.spawn("too late", async { unreachable!("the run is over") });
                drop(task);
            }
        }
        let guard = SpawnInDrop(m.clone());
        *keep.borrow_mut() = Some(m.spawn("left", async move {
            let _guard = guard;
            pending::<()>().await;
        }));
        m.sleep(ns(1)).await;
    });
}

#[test]
fn a_stale_waker_wakes_nobody() {
    let polls = Rc::new(Cell::new(0));
    let seen = polls.clone();
    simulate(|m| async move {
        let stale: Rc<RefCell<Option<Waker>>> = Rc::default();
        let keep = stale.clone();
        let first = m.spawn(
            "first",
            poll_fn(move |cx| {
                *keep.borrow_mut() = Some(cx.waker().clone());
                Poll::<()>::Pending
            }),
        );
        m.sleep(ns(1)).await;
        drop(first);
        let second = m.spawn(
            "second, in the same slot",
            poll_fn(move |_| {
                polls.set(polls.get() + 1);
                Poll::<()>::Pending
            }),
        );
        m.sleep(ns(1)).await;
        stale.borrow().as_ref().expect("the first was polled").wake_by_ref();
        m.sleep(ns(1)).await;
        drop(second);
    });
    assert_eq!(seen.get(), 1);
}

#[test]
fn a_task_is_woken_from_another_thread() {
    let outcome = simulate(|_| async move {
        let woken = Arc::new(Mutex::new(false));
        let seen = woken.clone();
        poll_fn(move |cx| {
            let mut woken = woken.lock().expect("no panic");
            if *woken {
                return Poll::Ready(());
            }
            *woken = true;
            let waker = cx.waker().clone();
            #[expect(clippy::disallowed_methods, reason = "the point of the test")]
            std::thread::spawn(move || waker.wake()).join().expect("it wakes");
            Poll::Pending
        })
        .await;
        *seen.lock().expect("no panic")
    });
    assert!(outcome.value);
}

#[test]
fn a_combinator_may_bring_its_own_wakers() {
    struct Count(Waker, Mutex<u32>);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            *self.1.lock().expect("no panic") += 1;
            self.0.wake_by_ref();
        }
    }
    let outcome = simulate(|m| async move {
        let mut sleep = Box::pin({
            let m = m.clone();
            async move { m.sleep(ns(7)).await }
        });
        let mut own: Option<Arc<Count>> = None;
        let count = poll_fn(move |cx| {
            let own = own.get_or_insert_with(|| Arc::new(Count(cx.waker().clone(), Mutex::new(0))));
            let waker = Waker::from(own.clone());
            match sleep.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                Poll::Ready(()) => Poll::Ready(*own.1.lock().expect("no panic")),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        (count, m.now())
    });
    assert_eq!(outcome.value, (1, Time(7)));
}

#[test]
fn simulations_nest() {
    let outcome = simulate(|m| async move {
        let notify = Rc::new(tokio::sync::Notify::new());
        let (n, inner) = (notify.clone(), m.clone());
        let task = m.spawn("outer", async move {
            inner.sleep(ns(3)).await;
            n.notify_one();
        });
        let nested = simulate(|m| async move {
            m.sleep(ns(100)).await;
            m.now()
        });
        notify.notified().await;
        drop(task);
        (nested.value, m.now())
    });
    assert_eq!(outcome.value, (Time(100), Time(3)));
}

#[test]
fn a_panic_in_a_task_comes_out_and_leaves_nothing_behind() {
    let log: Log<&str> = Rc::default();
    let (seen, tell) = (log.clone(), Tell("other task", log.clone()));
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        simulate(|m| async move {
            let _other = m.spawn("other", async move {
                let _tell = tell;
                pending::<()>().await;
            });
            m.sleep(ns(1)).await;
            std::panic::resume_unwind(Box::new("bad luck"));
        });
    }));
    assert_eq!(run.expect_err("it panicked").downcast_ref(), Some(&"bad luck"));
    assert_eq!(*seen.borrow(), ["other task"]);
    assert_eq!(Rc::strong_count(&seen), 2, "the machine and its tasks are gone: only the two logs here are left");
}

#[test]
fn a_livelock_is_a_report_and_not_a_hang() {
    let limits = Limits { polls_per_instant: 1000, ..Limits::default() };
    let stall = Simulation::<Tags>::new(Config { limits, ..Config::default() })
        .run(|m| async move {
            loop {
                m.sleep(ns(0)).await;
            }
            #[expect(unreachable_code, reason = "gives the future its type")]
            ()
        })
        .expect_err("it never ends");
    assert_eq!((stall.reason, stall.at), (StallReason::PollsPerInstant(1000), Time(0)));
}

#[test]
fn a_task_that_does_nothing_but_sleep_is_a_livelock_too() {
    let limits = Limits { polls: 1000, ..Limits::default() };
    let stall = Simulation::<Tags>::new(Config { limits, ..Config::default() })
        .run(|m| async move {
            loop {
                m.sleep(ns(1)).await;
            }
            #[expect(unreachable_code, reason = "gives the future its type")]
            ()
        })
        .expect_err("it never ends");
    assert_eq!((stall.reason, stall.at), (StallReason::Polls(1000), Time(1_000)));
}

#[test]
fn simulated_time_has_a_limit() {
    let limits = Limits { time_ns: 1_000, ..Limits::default() };
    let stall = Simulation::<Tags>::new(Config { limits, ..Config::default() })
        .run(|m| async move { m.sleep(ns(1_001)).await })
        .expect_err("too long");
    assert_eq!((stall.reason, stall.at), (StallReason::Time(Time(1_000)), Time(0)));
}

/// One sleeper of the model: begins at `begin`, sleeps for `length`, and is cancelled at `cancel` if that comes first.
#[derive(Clone, Copy, Debug)]
struct Sleeper {
    begin: u64,
    length: u64,
    cancel: Option<u64>,
}

fn sleepers() -> impl Strategy<Value = Vec<Sleeper>> {
    let sleeper = (0..50u64, 0..50u64, proptest::option::of(0..60u64));
    proptest::collection::vec(sleeper.prop_map(|(begin, length, cancel)| Sleeper { begin, length, cancel }), 1..40)
}

proptest! {
    #[test]
    fn timers_and_cancellations_are_those_of_a_sorted_map(sleepers in sleepers()) {
        // The model: a sorted map from (time, order of registration) to the sleeper, from which cancelled ones are taken out. Sleeps
        // begin and are cancelled at even times and end at odd ones, so that no cancellation meets an end.
        let end = |s: &Sleeper| 2 * (s.begin + s.length) + 1;
        let model: BTreeMap<(u64, u64, usize), usize> = sleepers
            .iter()
            .enumerate()
            .filter(|(_, s)| s.cancel.is_none_or(|cancel| 2 * cancel > end(s)))
            .map(|(k, s)| ((end(s), s.begin, k), k))
            .collect();
        let expected: Vec<(u64, usize)> = model.iter().map(|((at, _, _), k)| (*at, *k)).collect();

        let log: Log<(u64, usize)> = Rc::default();
        let seen = log.clone();
        simulate(|m| async move {
            let canceller: Vec<_> = sleepers
                .iter()
                .enumerate()
                .map(|(k, s)| {
                    let (inner, log, s) = (m.clone(), log.clone(), *s);
                    let task = m.spawn("sleeper", async move {
                        inner.sleep(ns(2 * s.begin)).await;
                        inner.sleep(ns(2 * s.length + 1)).await;
                        log.borrow_mut().push((inner.now().0, k));
                    });
                    let inner = m.clone();
                    m.spawn("canceller", async move {
                        match s.cancel {
                            Some(at) => inner.sleep(ns(2 * at)).await,
                            None => pending().await,
                        }
                        drop(task);
                    })
                })
                .collect();
            m.sleep(ns(1000)).await;
            drop(canceller);
        });
        prop_assert_eq!(&*seen.borrow(), &expected);
    }
}
