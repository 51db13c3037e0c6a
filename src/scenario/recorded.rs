//! What another loader did, by the trace that its user recorded, held against a scenario and its simulation.

use std::io::BufRead;

use super::{Findings, Found, Order, Samples, Scenario, Simulated, Verdict};
use crate::{
    document::{Diagnostic, Trouble},
    report::{Facts, Metrics, bottleneck::UNKNOWN},
    trace::{
        Recorder,
        recorded::{self, Batch, Recorded},
    },
    units::Count,
};

/// A recorded trace that was read.
pub struct Watched {
    /// The trace.
    pub recorded: Recorded,
    name: String,
    came: Came,
}

/// What a recorded trace says to a scenario.
pub struct Judged {
    /// The figures, as far as a consumer can know them.
    pub metrics: Metrics,
    /// Whether what was expected holds, as far as the trace tells.
    pub verdicts: Vec<Verdict>,
    /// Expectations that the trace says nothing about.
    pub untold: Vec<String>,
    /// Signs that the trace and the simulation are not of the same run.
    pub differences: Vec<String>,
    /// The trace.
    pub recorded: Recorded,
}

impl Scenario {
    /// Reads the trace in `input`, which errors call `name`, as that of a loader of these `samples`: see [`recorded::read`].
    ///
    /// # Errors
    ///
    /// When the trace is not what the format says, or the scenario is of several ranks.
    pub fn read_recorded(
        &self,
        name: &str,
        input: impl BufRead,
        samples: &Samples,
        recorder: Recorder,
    ) -> Result<Watched, Trouble> {
        if self.ranks.count > 1 {
            let wrong = Diagnostic::new("a recorded trace is of one consumer, and this scenario has one on every rank");
            let world = self.ranks.count;
            let hint = format!("predict one of them: `--set ranks.count=1 --set loader.world={world} --set loader.rank=0`");
            return Err(wrong.at(self.places.of("ranks.count")).hint(hint).into());
        }
        recorded::bounded(samples.count(), self.places.of("dataset.count"))?;
        let mut came = Came::new(samples.count());
        let recorded = recorded::read(name, input, recorder, |batch| came.take(batch))?;
        Ok(Watched { recorded, name: name.to_owned(), came })
    }

    /// Judges a trace as the measured side of this scenario, beside the simulation of it for the same samples.
    ///
    /// Samples are *once* when, in an epoch, no index of the dataset comes twice, and as many came as were planned; they are in
    /// *order* when they rise in each epoch. The first needs indices, and a scenario of one rank; the second one that does not
    /// shuffle too, since every loader shuffles in its own way.
    pub fn judge_recorded(&self, watched: Watched, simulated: &Simulated) -> Judged {
        let Watched { recorded, name, came } = watched;
        let facts = Facts {
            machine: if recorded.header.loader.is_empty() { name } else { recorded.header.loader.clone() },
            cores: recorded.header.cores.unwrap_or(0),
            ranks: 1,
            cpu_s: recorded.cpu_s,
            peak_rss_bytes: recorded.peak_rss_bytes,
            consumer_only: true,
            ..Facts::default()
        };
        let metrics = Metrics::of(&recorded.recorder, &facts);
        let whole = simulated.error.is_none() && self.consumer.leave_after.is_none();
        let planned = simulated.metrics.planned.zip(simulated.metrics.dropped).map(|(planned, dropped)| planned - dropped);
        let findings = came.finish(planned.filter(|_| whole));
        let mut unknown = vec!["peak_bytes_in_flight", "skipped"];
        let one_rank = self.loader.world == 1;
        let unless = |known: bool, name: &'static str| (!known).then_some(name);
        unknown.extend(unless(recorded.cpu_s.is_some(), "cpu"));
        unknown.extend(unless(metrics.accelerator_utilization.is_some(), "accelerator_utilization"));
        unknown.extend(unless(recorded.has_indices && one_rank, "exactly_once"));
        let ordered = !self.loader.shuffle && self.loader.order == Order::Plan;
        unknown.extend(unless(recorded.has_indices && one_rank && ordered, "order_kept"));
        unknown.extend(unless(metrics.bottleneck.name != UNKNOWN, "bottleneck"));
        let verdicts = self.expect.check(&Found::of(&metrics, &findings));
        let (untold, verdicts): (Vec<_>, Vec<_>) = verdicts.into_iter().partition(|v| unknown.contains(&v.name.as_str()));
        let untold = untold.into_iter().map(|v| v.name).collect();
        let differences = self.differences(&recorded, &metrics, simulated);
        Judged { metrics, verdicts, untold, differences, recorded }
    }

    /// What shows that a trace is of another run than the one simulated.
    fn differences(&self, recorded: &Recorded, metrics: &Metrics, simulated: &Simulated) -> Vec<String> {
        let mut differences = Vec::new();
        let (then, now) = (recorded.samples, simulated.metrics.delivered);
        if then != now {
            let (then, now) = (Count(then), Count(now));
            differences
                .push(format!("the trace has {then} samples, the prediction {now}; `loader.epochs` or the dataset differ"));
        }
        differences.extend(recorded.other_batch(self.loader.batch, self.dataset.count().unwrap_or(u64::MAX)));
        let cores = simulated.metrics.cores;
        if metrics.cores > 0 && cores > 0 && metrics.cores != cores {
            differences.push(format!("the trace is of {} cores, the machine that was simulated has {cores}", metrics.cores));
        }
        let step_ms = |recorder: &Recorder| {
            let steps = recorder.summary().consumers().fold((0, 0), |(ns, n), c| (ns + c.step_ns(), n + c.steps()));
            (steps.1 > 0).then(|| steps.0 as f64 / steps.1 as f64 / 1e6)
        };
        if let Some((then, now)) = step_ms(&recorded.recorder).zip(step_ms(&simulated.recorder))
            && (then - now).abs() > (0.1 * then.max(now)).max(0.1)
        {
            differences.push(format!(
                "the trace's steps take {then:.1} ms on average, the prediction's {now:.1} ms: `--set \"consumer.step={then:.1} ms\"`"
            ));
        }
        differences
    }
}

/// Which samples came, by their indices in the dataset.
struct Came {
    count: u64,
    /// The samples of the current epoch, one bit each.
    epoch: Vec<u64>,
    current: u32,
    last: Option<u64>,
    delivered: u64,
    twice: Option<String>,
    disorder: Option<String>,
}

impl Came {
    fn new(count: u64) -> Came {
        Came { count, epoch: Vec::new(), current: 0, last: None, delivered: 0, twice: None, disorder: None }
    }

    fn take(&mut self, batch: &Batch) {
        self.delivered += batch.samples;
        let Some(indices) = &batch.indices else { return };
        let epoch = batch.epoch;
        if self.epoch.is_empty() || epoch != self.current {
            self.epoch.clear();
            self.epoch.resize(self.count.div_ceil(64) as usize, 0);
            self.current = epoch;
            self.last = None;
        }
        for index in indices {
            let bit = 1 << (index % 64);
            match self.epoch.get_mut((index / 64) as usize) {
                Some(word) if *index < self.count && *word & bit == 0 => *word |= bit,
                Some(_) if *index < self.count => {
                    self.twice.get_or_insert_with(|| format!("sample {index} came a second time in epoch {epoch}"));
                }
                _ => {
                    let count = self.count;
                    self.twice.get_or_insert_with(|| format!("sample {index} came, and the dataset has {count}"));
                }
            }
            if let Some(last) = self.last.filter(|last| index <= last) {
                self.disorder.get_or_insert_with(|| format!("sample {index} came after sample {last} in epoch {epoch}"));
            }
            self.last = Some(*index);
        }
    }

    /// What came of it, where so many were `planned`; `None` when it is not known how many.
    fn finish(self, planned: Option<u64>) -> Findings {
        let delivered = self.delivered;
        let other = planned.filter(|n| *n != delivered).map(|n| format!("{delivered} samples came, {n} were planned"));
        Findings { exactly_once: self.twice.or(other).map_or(Ok(()), Err), order_kept: self.disorder.map_or(Ok(()), Err) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model,
        scenario::{Overrides, parse},
    };

    const FIXTURE: &str = include_str!("../../tests/data/recorded.jsonl");

    const SCENARIO: &str = "title = \"other\"\nmachine = \"reference-2core\"\n[dataset]\nkind = \"synthetic\"\ncount = 6\n\
                            [loader]\nbatch = 4\nepochs = 2\nshuffle = true\n[consumer]\nstep = \"100 ms\"\n\
                            [expect.exactly_once]\n[expect.order_kept]\n[expect.bottleneck]\nis = \"decode\"\n\
                            [expect.throughput]\nmin = \"8 samples/s\"\n[expect.skipped]\nmax = 0\n[expect.cpu]\nmax = \"3 s\"\n";

    fn judged(sets: &[&str], trace: &str) -> Judged {
        let overrides = Overrides::set(sets.iter().map(|set| (*set).to_owned()));
        let scenario = parse("other.toml", SCENARIO, &overrides).unwrap();
        let machine = model::load("reference-2core").unwrap();
        let samples = scenario.samples().unwrap().unwrap();
        let simulated = scenario.simulate(&machine, &samples, Recorder::new()).unwrap();
        let watched = scenario.read_recorded("trace.jsonl", trace.as_bytes(), &samples, Recorder::new()).unwrap();
        scenario.judge_recorded(watched, &simulated)
    }

    fn verdict(judged: &Judged, name: &str) -> Option<(bool, String)> {
        judged.verdicts.iter().find(|v| v.name == name).map(|v| (v.held, v.found.clone()))
    }

    #[test]
    fn what_the_trace_tells_is_held_against_what_was_expected_and_the_rest_named() {
        let judged = judged(&[], FIXTURE);
        let held: Vec<_> = judged.verdicts.iter().map(|v| (v.name.as_str(), v.held)).collect();
        assert_eq!(held, [("throughput", true), ("cpu", true), ("exactly_once", true)]);
        assert_eq!(judged.untold, ["skipped", "order_kept", "bottleneck"]);
        assert_eq!(judged.differences, [""; 0]);
        assert_eq!((judged.metrics.machine.as_str(), judged.metrics.cores), ("PyTorch DataLoader, 2 workers", 2));
    }

    #[test]
    fn a_sample_that_comes_twice_or_is_missing_is_named() {
        let twice = judged(&[], &FIXTURE.replace("[4, 3]", "[4, 5]"));
        assert_eq!(verdict(&twice, "exactly_once"), Some((false, "sample 5 came a second time in epoch 0".to_owned())));
        let other = judged(&[], &FIXTURE.replace("[4, 3]", "[4, 6]"));
        assert_eq!(verdict(&other, "exactly_once"), Some((false, "sample 6 came, and the dataset has 6".to_owned())));
        let line = FIXTURE.lines().nth(4).unwrap();
        let fewer = judged(&[], &FIXTURE.replace(line, ""));
        assert_eq!(verdict(&fewer, "exactly_once"), Some((false, "10 samples came, 12 were planned".to_owned())));
        assert!(fewer.differences[0].starts_with("the trace has 10 samples, the prediction 12"), "{:?}", fewer.differences);
        let without = |line: &str| line.split_once(", \"indices\"").map_or(line.to_owned(), |(before, _)| format!("{before}}}"));
        let unnamed = judged(&[], &FIXTURE.lines().map(without).collect::<Vec<_>>().join("\n"));
        assert_eq!(verdict(&unnamed, "exactly_once"), None);
    }

    #[test]
    fn order_is_judged_where_nothing_is_shuffled() {
        let straight = FIXTURE.replace("[2, 0, 5, 1]", "[0, 1, 2, 3]").replace("[4, 3]", "[4, 5]");
        let straight = straight.replace("[1, 5, 3, 0]", "[0, 1, 2, 3]").replace("[2, 4]", "[4, 5]");
        let sets = ["loader.shuffle=false"];
        assert_eq!(verdict(&judged(&sets, &straight), "order_kept"), Some((true, "so it is".to_owned())));
        let found = verdict(&judged(&sets, FIXTURE), "order_kept");
        assert_eq!(found, Some((false, "sample 0 came after sample 2 in epoch 0".to_owned())));
    }

    #[test]
    fn another_run_than_the_one_simulated_is_noticed() {
        let judged = judged(&["loader.batch=3", "consumer.step=20 ms"], &FIXTURE.replace("\"cores\": 2", "\"cores\": 8"));
        assert_eq!(
            judged.differences,
            [
                "the trace has batches of 4, the scenario of 3: `--set loader.batch=4`",
                "the trace is of 8 cores, the machine that was simulated has 2",
                "the trace's steps take 100.0 ms on average, the prediction's 20.0 ms: `--set \"consumer.step=100.0 ms\"`",
            ]
        );
    }
}
