//! Several ranks on one machine: devices that share links, steps that end in a barrier.

use std::{cell::RefCell, rc::Rc, time::Duration};

use towtank::{
    machine::{Machine, Op, Tags},
    sim::{
        Config, CopyBy, CopySpec, Cost, Costs, Dataset, GpuSpec, LaneSpec, Limits, PartyLost, PcieSpec, RequestRate, SimBarrier,
        SimMachine, Size, Slowed, StoreSpec, run,
    },
    trace::{Kind, Recorder, StageId},
};

use crate::{JOB, op};

const GB: u64 = 1_000_000_000;

/// Eight devices at 26 GB/s, two of them behind each uplink of 13 GB/s; a copy takes 10 µs and its bytes.
fn config() -> Config {
    let pcie = PcieSpec { devices_per_uplink: 2, uplink: LaneSpec::both(13 * GB), ..PcieSpec::new(8, LaneSpec::both(26 * GB)) };
    Config { copy: CopySpec { by: CopyBy::Pcie(pcie), cost: Cost::fixed(10_000) }, ..Config::default() }
}

fn of_rank(rank: u16, sample: u64) -> Op {
    Op { rank, ..op(StageId::TRANSFER, sample) }
}

async fn copy(m: &SimMachine<Tags>, rank: u16, bytes: usize) {
    let (slots, batch) = (m.slots(1, bytes).expect("memory"), m.device_batch(1, bytes).expect("memory"));
    m.copy(of_rank(rank, 0), slots, batch, 0).await.map(|_| ()).expect("a copy");
}

/// What tasks came to that ran side by side, for a second at most.
async fn side_by_side<T: Clone + 'static, F: Future<Output = T> + 'static>(
    m: &SimMachine<Tags>,
    ranks: impl IntoIterator<Item = F>,
) -> Vec<Option<T>> {
    let ends = Rc::new(RefCell::new(Vec::new()));
    let mut tasks = Vec::new();
    for (k, rank) in ranks.into_iter().enumerate() {
        ends.borrow_mut().push(None);
        let ends = ends.clone();
        tasks.push(m.spawn("rank", async move {
            let end = rank.await;
            ends.borrow_mut()[k] = Some(end);
        }));
    }
    m.sleep(Duration::from_secs(1)).await;
    drop(tasks);
    ends.take()
}

/// When copies of 13 MB end, one on each of these ranks, in µs.
fn copies(config: Config, ranks: &'static [u16]) -> Vec<u64> {
    let outcome = run(config, Recorder::new(), move |m| async move {
        let one = |rank: &u16| {
            let (m, rank) = (m.clone(), *rank);
            async move {
                copy(&m, rank, 13_000_000).await;
                m.now().0 / 1000
            }
        };
        side_by_side(&m, ranks.iter().map(one)).await
    });
    outcome.expect("it ends").value.into_iter().map(|end| end.expect("every copy ends")).collect()
}

#[test]
fn a_copy_takes_its_latency_and_then_its_bytes_over_the_slowest_link() {
    assert_eq!(copies(config(), &[5]), [1010]);
}

#[test]
fn a_pair_of_devices_shares_its_uplink_and_other_pairs_do_not_feel_it() {
    assert_eq!(copies(config(), &[0, 1, 2, 4, 6]), [2010, 2010, 1010, 1010, 1010]);
}

#[test]
fn two_copies_of_one_rank_stand_in_line_for_its_engine() {
    assert_eq!(copies(config(), &[3, 3]), [1010, 2020]);
}

#[test]
fn bytes_that_come_back_are_in_the_trace_and_slow_those_that_go() {
    let lane = LaneSpec { bytes_per_s: 20 * GB, against_bytes_per_s: 10 * GB };
    let pcie = PcieSpec { to_host: LaneSpec::both(20 * GB), to_device: lane, ..PcieSpec::new(1, LaneSpec::both(20 * GB)) };
    let config = Config { copy: CopySpec { by: CopyBy::Pcie(pcie), cost: Cost::FREE }, ..Config::default() };
    let outcome = run(config, Recorder::new().keep_events(), |m| async move {
        let back = m.clone();
        let task = m.spawn("back", async move { back.copy_back(of_rank(0, 1), 20_000_000).await.expect("a copy") });
        copy(&m, 0, 20_000_000).await;
        drop(task);
        m.now().0
    })
    .expect("it ends");
    // 10 MB against the 20 MB that come back in a millisecond, then 10 MB at full speed.
    assert_eq!(outcome.value, 1_500_000);
    let ends: Vec<_> = outcome.recorder.events().iter().filter(|e| e.kind == Kind::End).map(|e| (e.sample, e.time.0)).collect();
    assert_eq!(ends, [(1, 1_000_000), (0, 1_500_000)]);
}

#[test]
fn a_copy_given_up_on_its_way_runs_to_its_end_and_gives_its_engine_back() {
    let outcome = run(config(), Recorder::new(), |m| async move {
        for given_up_at in [5, 500] {
            let first = m.clone();
            let task = m.spawn("first", async move { copy(&first, 0, 13_000_000).await });
            m.sleep(Duration::from_micros(given_up_at)).await;
            drop(task);
            m.quiesce().await;
        }
        copy(&m, 0, 13_000_000).await;
        m.now().0 / 1000
    });
    assert_eq!(outcome.expect("it ends").value, 3 * 1010);
}

/// Ranks whose steps take 1, 2, … ms, four of them, and a barrier after each: what each got last, and when (ms).
fn steps(ranks: u32, last: impl Fn(u32, &SimBarrier) -> bool + Copy + 'static) -> Vec<(Result<u64, PartyLost>, u64)> {
    let outcome = run(Config::default(), Recorder::new(), move |m| async move {
        let barrier = SimBarrier::new(ranks);
        let one = |rank| {
            let (m, barrier) = (m.clone(), barrier.clone());
            async move {
                let mut end = (Ok(u64::MAX), 0);
                for step in 0..4 {
                    m.sleep(Duration::from_millis(u64::from(rank) + 1)).await;
                    if step == 2 && last(rank, &barrier) {
                        break;
                    }
                    end = (barrier.wait().await, m.now().0 / 1_000_000);
                    if end.0.is_err() {
                        break;
                    }
                }
                end
            }
        };
        side_by_side(&m, (0..ranks).map(one)).await
    });
    outcome.expect("it ends").value.into_iter().map(|end| end.expect("every rank ends")).collect()
}

#[test]
fn steps_that_end_in_a_barrier_go_at_the_pace_of_the_slowest_rank() {
    assert_eq!(steps(8, |_, _| false), [(Ok(3), 32); 8]);
}

#[test]
fn ranks_go_on_without_one_that_leaves_and_fail_with_one_that_is_lost() {
    let leaves = |rank, barrier: &SimBarrier| {
        if rank == 2 {
            barrier.leave();
        }
        rank == 2
    };
    // Two steps of 3 ms, one that waits 3 ms for the one who goes, one of 2 ms.
    assert_eq!(steps(3, leaves), [(Ok(3), 11), (Ok(3), 11), (Ok(1), 6)]);
    let is_lost = |rank, barrier: &SimBarrier| {
        if rank == 2 {
            barrier.lose();
        }
        rank == 2
    };
    assert_eq!(steps(3, is_lost), [(Err(PartyLost), 9), (Err(PartyLost), 9), (Ok(1), 6)]);
}

#[test]
fn who_gives_its_wait_up_has_not_arrived() {
    let outcome = run(Config::default(), Recorder::new(), |m| async move {
        let barrier = SimBarrier::new(2);
        let early = barrier.clone();
        let task = m.spawn("early", async move { early.wait().await.map(|_| ()).unwrap_or(()) });
        m.sleep(Duration::from_millis(1)).await;
        drop(task);
        let (inner, late) = (m.clone(), barrier.clone());
        let task = m.spawn("late", async move {
            inner.sleep(Duration::from_millis(5)).await;
            late.wait().await.map(|_| ()).unwrap_or(());
        });
        let met = barrier.wait().await;
        drop(task);
        (met, m.now().0)
    });
    assert_eq!(outcome.expect("it ends").value, (Ok(0), 6_000_000));
}

#[test]
fn nodes_share_neither_cores_nor_links_nor_memory() {
    let config =
        || Config { nodes: 2, pool_threads: 4, memory_bytes: Some(100), costs: Costs::all(Cost::fixed(1_000_000)), ..config() };
    // When jobs of a millisecond end on these nodes of one core each, in µs.
    let jobs = |nodes: &'static [u16]| {
        let outcome = run(config(), Recorder::new(), move |m| async move {
            let one = |node: &u16| {
                let m = m.on_node(*node);
                async move {
                    m.cpu(op(StageId::DECODE, 0), JOB, || ()).await.expect("a job");
                    m.now().0 / 1000
                }
            };
            side_by_side(&m, nodes.iter().map(one)).await
        });
        outcome.expect("it ends").value.into_iter().map(|end| end.expect("every job ends")).collect::<Vec<_>>()
    };
    assert_eq!(jobs(&[0, 0]), [2000, 2000]);
    assert_eq!(jobs(&[0, 1]), [1000, 1000]);
    assert_eq!(jobs(&[0, 1, 1, 1]), [1000, 3000, 3000, 3000]);
    // Devices of one switch, on one node and on two.
    let copies = |nodes: [u16; 2]| {
        let outcome = run(Config { memory_bytes: None, ..config() }, Recorder::new(), move |m| async move {
            let one = |(rank, node): (usize, u16)| {
                let m = m.on_node(node);
                async move {
                    copy(&m, rank as u16, 13_000_000).await;
                    m.now().0 / 1000
                }
            };
            side_by_side(&m, nodes.into_iter().enumerate().map(one)).await
        });
        outcome.expect("it ends").value
    };
    assert_eq!(copies([1, 1]), [Some(2010), Some(2010)]);
    assert_eq!(copies([0, 1]), [Some(1010), Some(1010)]);
    let outcome = run(config(), Recorder::new(), |m| async move {
        let _held = m.slots(1, 80).expect("memory of its node");
        assert!(m.on_node(1).slots(1, 80).is_ok() && m.slots(1, 80).is_err());
    });
    assert_eq!(outcome.expect("it ends").slots_bytes_peak, 80);
}

#[test]
fn nodes_share_the_requests_that_a_store_takes() {
    let store = StoreSpec { requests: Some(RequestRate { per_s: 1, burst: 3 }), ..StoreSpec::default() };
    let config = Config { nodes: 4, store, dataset: Dataset::uniform(4, Size { bytes: 1, pixels: 1 }), ..Config::default() };
    let outcome = run(config, Recorder::new(), |m| async move {
        let mut read = Vec::new();
        for node in 0..4 {
            read.push(m.on_node(node).read(op(StageId::FETCH, 0)).await.is_ok());
        }
        read
    });
    assert_eq!(outcome.expect("it ends").value, [true, true, true, false]);
}

#[test]
fn a_step_is_slowed_down_by_the_host_of_its_own_node() {
    let gpu = GpuSpec { slowed: vec![Slowed { busy: 1, by_ppm: 1_000_000 }] };
    let costs = Costs::all(Cost::fixed(100_000_000));
    let outcome = run(Config { nodes: 2, gpu, costs, ..Config::default() }, Recorder::new(), |m| async move {
        let steps = [0, 1].map(|node| {
            let m = m.on_node(node);
            async move {
                m.step(Duration::from_millis(10)).await;
                m.now().0
            }
        });
        let busy = m.clone();
        let job = m.spawn("job", async move { busy.cpu(op(StageId::DECODE, 0), JOB, || ()).await.expect("a job") });
        let ends = side_by_side(&m, steps).await;
        drop(job);
        ends
    });
    assert_eq!(outcome.expect("it ends").value, [Some(20_000_000), Some(10_000_000)]);
}

#[test]
fn a_stall_on_many_nodes_tells_of_all_together() {
    let config =
        Config { nodes: 3, pool_threads: 2, limits: Limits { time_ns: 1_000_000, ..Limits::default() }, ..Config::default() };
    let config = Config { costs: Costs::all(Cost::fixed(5_000_000)), ..config };
    let stall = run(config, Recorder::new(), |m| async move {
        let job = |node: u16| {
            let m = m.on_node(node);
            async move { m.cpu(op(StageId::DECODE, 0), JOB, || ()).await.is_ok() }
        };
        side_by_side(&m, [0, 1, 1, 1, 2].map(job)).await
    });
    let pool = stall.expect_err("its time is up").depths.into_iter().find(|depth| depth.resource == "pool").expect("a pool");
    assert_eq!((pool.busy, pool.places, pool.waiting), (4, Some(6), 1));
}
