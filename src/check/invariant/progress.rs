//! Progress: a run comes to its end.

use super::{Broken, Ended, Invariant};

/// A run comes to its end. It is broken by a deadlock, where nothing can happen any more and work is left; by a livelock, where tasks wake
/// each other without the clock moving; and by a run that reaches a limit of polls, of events or of time.
pub struct Progress;

impl Invariant for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        match ended.stall {
            None => Ok(()),
            Some(stall) => Err(Broken::new(stall.reason.to_string()).at(stall.at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::invariant::fold,
        machine::{Machine, Time},
        sim::{Config, Left, run},
        trace::Recorder,
    };

    #[test]
    fn a_task_that_waits_for_nobody_breaks_it() {
        let stuck = run(Config::default(), Recorder::new(), |machine| async move {
            machine.sleep(std::time::Duration::from_millis(3)).await;
            std::future::pending::<()>().await;
        });
        let stall = stuck.expect_err("nobody wakes it");
        let ended = Ended {
            got: &[],
            ends: &[],
            stall: Some(&stall),
            left: Left::default(),
            held_bytes_peak: 0,
            at: stall.at,
            leaves: false,
        };
        let broken = fold(&mut Progress, &[], &ended).expect_err("a deadlock");
        assert_eq!(broken.at, Some(Time(3_000_000)));
        assert!(broken.why.starts_with("nothing can happen any more"), "{broken}");
        assert_eq!(fold(&mut Progress, &[], &Ended { stall: None, ..ended }), Ok(()));
    }
}
