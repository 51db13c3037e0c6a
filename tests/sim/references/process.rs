//! Processes and the pipes between them.

use std::{cell::RefCell, rc::Rc, time::Duration};

use towtank::{
    machine::{Machine, Tags},
    sim::{Config, Cost, CpuSpec, PipeSpec, ProcessSpec, SchedulerSpec, SimMachine, SimPipe},
    trace::StageId,
};

use super::{EXPONENTIAL, MEAN_NS, check, exact, job, machine, op, run};

const MS: u64 = 1_000_000;

/// A pipe whose ends take so long for a message (ms).
fn pipe(send_ms: u64, latency_ms: u64, receive_ms: u64, capacity: u32) -> SimPipe<u64> {
    let (send, receive) = (Cost::fixed(send_ms * MS), Cost::fixed(receive_ms * MS));
    SimPipe::new(PipeSpec { send, receive, latency_ns: latency_ms * MS, capacity })
}

/// The operation of the message `k`.
fn message(k: &u64) -> towtank::machine::Op {
    op(StageId::TRANSFER, *k)
}

async fn pause(m: &SimMachine<Tags>, ms: u64) {
    m.sleep(Duration::from_millis(ms)).await;
}

/// Workers that do jobs of 1 ms, three each, and note when each of theirs ends (ms); started one after the other.
fn worked(cores: u32, workers: u64, spec: ProcessSpec) -> Vec<u64> {
    let config = Config { cpu: CpuSpec { cores, speed_ppm: Vec::new() }, ..machine(0, 1, Cost::EXACT) };
    let seen = Rc::new(RefCell::new(Vec::new()));
    let found = seen.clone();
    run(config, move |m| async move {
        let main = m.process();
        let mut tasks = Vec::new();
        for k in 0..workers {
            let seen = seen.clone();
            let work = move |own: SimMachine<Tags>| async move {
                for _ in 0..3 {
                    job(own.clone(), k).await;
                    seen.borrow_mut().push(own.now().0 / MS);
                }
            };
            tasks.push(main.start_process("worker", &spec, work).await);
        }
        pause(&m, 1000).await;
    });
    found.take()
}

#[test]
fn workers_start_one_after_the_other_and_share_the_cores() {
    let case = |what: &str, expected: &[u64], found: &[u64]| {
        assert_eq!(expected.len(), found.len(), "{what}: {found:?}");
        for (k, (expected, found)) in expected.iter().zip(found).enumerate() {
            exact(what, &format!("end of job {} [ms]", k + 1), *expected, *found);
        }
    };
    // The first is up at 6 + 20 ms, the second 6 ms later.
    let spec = ProcessSpec { start_ns: 6 * MS, boot_ns: 20 * MS };
    case("processes, start 6 ms, boot 20 ms", &[27, 28, 29, 33, 34, 35], &worked(4, 2, spec));
    // Two on one core: each gets half of it. The pool has one thread, which neither needs.
    let at_once = || ProcessSpec { start_ns: 0, boot_ns: 0 };
    case("2 processes on 1 core", &[2, 2, 4, 4, 6, 6], &worked(1, 2, at_once()));
    case("2 processes on 2 cores", &[1, 1, 2, 2, 3, 3], &worked(2, 2, at_once()));
}

#[test]
fn a_process_needs_neither_the_pool_nor_the_scheduler() {
    let scheduler = SchedulerSpec { per_wake_ns: 7 * MS, per_completion_ns: 7 * MS, ..SchedulerSpec::default() };
    let config = Config { scheduler, wakeup_ns: MS, ..machine(0, 1, Cost::EXACT) };
    let outcome = run(config, |m| async move { job(m.process(), 0).await });
    exact("process, costly scheduler", "end [ns]", MEAN_NS, outcome.end.0);
}

/// When each of `messages` has been sent and received (ms), with a core for each end.
fn passed(pipe: SimPipe<u64>, messages: u64) -> [Vec<u64>; 2] {
    let config = Config { cpu: CpuSpec { cores: 2, speed_ppm: Vec::new() }, ..machine(0, 1, Cost::EXACT) };
    let seen = Rc::new(RefCell::new([Vec::new(), Vec::new()]));
    let found = seen.clone();
    run(config, move |m| async move {
        let main = m.process();
        let sender = m.spawn("sender", {
            let (own, pipe, seen) = (m.process(), pipe.clone(), seen.clone());
            async move {
                for k in 0..messages {
                    pipe.send(&own, message(&k), 0, k).await;
                    seen.borrow_mut()[0].push(own.now().0 / MS);
                }
            }
        });
        for k in 0..messages {
            assert_eq!(pipe.receive(&main, message).await, k);
            seen.borrow_mut()[1].push(main.now().0 / MS);
        }
        drop(sender);
    });
    found.take()
}

#[test]
fn both_ends_of_a_pipe_pay_for_a_message() {
    for (what, pipe, sent, received) in [
        ("pipe 4 + 2 + 5 ms", pipe(4, 2, 5, 8), [4, 8, 12, 16], [11, 16, 21, 26]),
        ("pipe 5 + 2 + 4 ms", pipe(5, 2, 4, 8), [5, 10, 15, 20], [11, 16, 21, 26]),
        // One in the pipe and one being received: the third waits for room until the second has been taken.
        ("pipe 1 + 0 + 5 ms, room for 1", pipe(1, 0, 5, 1), [1, 2, 6, 11], [6, 11, 16, 21]),
    ] {
        for (name, expected, found) in [("sent", sent, 0), ("received", received, 1)] {
            for (k, (expected, found)) in expected.iter().zip(&passed(pipe.clone(), 4)[found]).enumerate() {
                exact(what, &format!("{name} {} [ms]", k + 1), *expected, *found);
            }
        }
    }
}

#[test]
fn tandem_queue_with_a_bounded_pipe_between() {
    // Two exponential stations of the same rate with b places between: the second one serves whenever one of b + 2 is there, and with
    // the blocked one the number there is a birth-death process of b + 3 equally likely states.
    for b in [1, 4] {
        let expected = f64::from(b + 2) / f64::from(b + 3);
        check(&format!("tandem queue, pipe of {b}"), &[("throughput", expected)], |seed| {
            const MESSAGES: u64 = 5_000;
            let config = Config { cpu: CpuSpec { cores: 2, speed_ppm: Vec::new() }, ..machine(seed, 1, Cost::EXACT) };
            let cost = || Cost { residual_ppm: EXPONENTIAL, ..Cost::fixed(MEAN_NS) };
            let end = run(config, move |m| async move {
                let pipe = SimPipe::new(PipeSpec { send: cost(), receive: cost(), latency_ns: 0, capacity: b });
                let (own, into) = (m.process(), pipe.clone());
                let sender = m.spawn("sender", async move {
                    for k in 0..MESSAGES {
                        into.send(&own, op(StageId::BATCH, k), 0, k).await;
                    }
                });
                let main = m.process();
                for _ in 0..MESSAGES {
                    pipe.receive(&main, message).await;
                }
                drop(sender);
            })
            .end;
            vec![MESSAGES as f64 * MEAN_NS as f64 / end.0 as f64]
        });
    }
}
