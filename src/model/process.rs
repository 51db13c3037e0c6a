//! What worker processes cost.

use serde::Serialize;

use super::{Cost, Measured};
use crate::{
    designs::WorkerProcesses,
    document::{FromSection, Section, documented},
    sim::ProcessSpec,
    units::{ByteCost, Duration, Fraction},
};

documented! {
    /// Worker processes, for designs that have them. [`Process::default`] holds where a model says nothing.
    ///
    /// ```toml
    /// [process]
    /// start = "6 ms"
    /// send = { fixed = "60 µs", per_byte = "0.83 ns/B" }
    /// receive = { fixed = "60 µs" }
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Process {
        /// CPU time of the main process to start a worker; several are started one after the other. 6 ms when left out: a fork.
        pub start: Measured<Duration>,
        /// CPU time of a worker until it does anything of use, beside the main process: an interpreter that starts, imports. None when left
        /// out, as after a fork.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub boot: Option<Measured<Duration>>,
        /// CPU time of a worker to collate a batch and hand it over, by the bytes of its decoded samples.
        pub send: Cost,
        /// CPU time of the main process to receive it, and to give out the next one.
        pub receive: Cost,
    }
}

impl Default for Process {
    /// PyTorch 2 under Linux, measured on two cores of an AMD EPYC: workers are forked, tensors handed over in shared memory.
    fn default() -> Process {
        let percent = |percent| Fraction::new(percent, "%");
        let message = || {
            let source = "measured: 51 to 71 µs an item where every tiny item is a message; taken for either end";
            Some(Measured::new(Duration::new(60.0, "µs"), source, percent(30.0)))
        };
        let pages = Measured::new(
            ByteCost::new(0.83, "ns/B"),
            "measured: 8 ms for a batch of 9.6 MB into fresh shared pages",
            percent(30.0),
        );
        Process {
            start: Measured::new(Duration::new(6.0, "ms"), "measured: a fork of Python with torch", percent(30.0)),
            boot: None,
            send: Cost { fixed: message(), per_byte: Some(pages), ..Cost::FREE },
            receive: Cost { fixed: message(), ..Cost::FREE },
        }
    }
}

impl FromSection for Process {
    const EXPECTED: &'static str =
        r#"a worker process: { start = "6 ms", send = { per_byte = "0.83 ns/B" }, receive = { fixed = "60 µs" } }"#;

    fn read(section: &Section<'_>) -> Option<Process> {
        section.documents(Process::DOCS);
        let usual = Process::default();
        Some(Process {
            start: section.plain("start").unwrap_or(usual.start),
            boot: section.plain("boot"),
            send: section.plain("send").unwrap_or(usual.send),
            receive: section.plain("receive").unwrap_or(usual.receive),
        })
    }
}

impl Process {
    /// A design of `workers` such processes with `prefetch_factor` batches each, on a machine on which a sleeping thread needs `wake_up`.
    pub fn to_design(&self, workers: u32, prefetch_factor: u32, wake_up: Duration) -> WorkerProcesses {
        WorkerProcesses {
            workers,
            prefetch_factor,
            process: ProcessSpec {
                start_ns: self.start.value.as_ns(),
                boot_ns: self.boot.as_ref().map_or(0, |m| m.value.as_ns()),
            },
            send: self.send.to_sim(),
            receive: self.receive.to_sim(),
            latency_ns: wake_up.as_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Process;
    use crate::{model::parse, units::Duration};

    #[test]
    fn a_process_is_read_written_and_simulated_and_the_usual_one_stands_for_what_is_not_said() {
        let with = |process: &str| {
            let text = format!("{}\n{process}\n", include_str!("../../models/reference-2core.toml"));
            let machine = parse("with.toml", &text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parse("written.toml", &machine.to_toml()).unwrap_or_else(|e| panic!("{e}")), machine);
            machine.process
        };
        assert_eq!(with(""), None);
        let spawned =
            with("[process]\nstart = \"2 ms\"\nboot = \"122 ms\"\nreceive = { per_byte = \"1 ns/B\" }").expect("it is there");
        let design = spawned.to_design(3, 2, Duration::new(20.0, "µs"));
        assert_eq!((design.workers, design.prefetch_factor, design.latency_ns), (3, 2, 20_000));
        assert_eq!((design.process.start_ns, design.process.boot_ns), (2_000_000, 122_000_000));
        // 8 ms and a message of 60 µs for 9.6 MB; and what was said.
        assert_eq!((design.send.ns(9_600_000, 0, 0), design.receive.ns(9_600_000, 0, 0)), (8_028_000, 9_600_000));
        assert_eq!(with("[process]"), Some(Process::default()));
        let wrong = format!("{}\n[process]\nstrat = \"6 ms\"\n", include_str!("../../models/reference-2core.toml"));
        let error = parse("odd.toml", &wrong).unwrap_err().to_string();
        assert!(error.contains("did you mean `start`?"), "{error}");
    }
}
