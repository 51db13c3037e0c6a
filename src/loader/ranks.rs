//! Loaders of several ranks on one machine.

use std::future::Future;

use crate::machine::Machine;

/// Runs all ranks side by side, to the end of each, on either machine; one alone in the root task. What is dropped stops all of them.
pub(crate) async fn all_ranks<M, T, R>(machine: M, ranks: Vec<R>) -> Vec<T>
where
    M: Machine,
    T: 'static,
    R: Future<Output = T> + 'static,
{
    if ranks.len() == 1 {
        let alone = ranks.into_iter().next().expect("there is one");
        return vec![alone.await];
    }
    let ranks: Vec<_> = ranks
        .into_iter()
        .map(|rank| {
            let (tell, told) = tokio::sync::oneshot::channel();
            let task = machine.spawn("rank", async move {
                let heard = tell.send(rank.await);
                debug_assert!(heard.is_ok(), "all ranks are waited for");
            });
            (task, told)
        })
        .collect();
    let mut ended = Vec::with_capacity(ranks.len());
    for (_task, told) in ranks {
        ended.push(told.await.expect("a rank tells how it ended"));
    }
    ended
}
