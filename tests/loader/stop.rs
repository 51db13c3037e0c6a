//! A consumer that leaves.

use towtank::{
    loader::{End, Order},
    machine::Tags,
};

use crate::{
    content::{Case, case, clean, machine},
    paused,
    scenario::{Consumer, load_world},
    world::oracle,
};

#[test]
fn a_consumer_may_leave_after_any_batch() {
    let mut runs = 0;
    for seed in 4000..4100 {
        let _case = Case(seed);
        let Some((settings, world)) = case(seed) else { continue };
        let oracle = oracle(&settings, &world);
        let stride = oracle.batches.len() / 20 + 1;
        for k in (0..=oracle.batches.len()).step_by(stride) {
            let consumer = Consumer { leaves_after: k, step_ms: [0, 1, 30_000][k % 3] };
            let run = paused::run::<Tags, _, _>(machine(seed), |machine| load_world(machine, settings.clone(), world, consumer));
            let (seen, outcome) = run.value;
            assert_eq!(seen.batches.len(), k);
            if settings.order == Order::Plan {
                assert_eq!(seen.batches, oracle.batches[..k]);
            }
            // With every batch taken, it depends on whether samples that fail are still to come.
            if k < oracle.batches.len() {
                assert_eq!(outcome.end, End::Left);
            }
            clean(&settings, &outcome);
            assert_eq!(run.left, (0, 0), "tasks and leaves");
            assert_eq!(outcome.accounts.batches as usize, k);
            runs += 1;
        }
    }
    assert!(runs > 500, "{runs}");
}
