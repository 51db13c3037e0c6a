//! A scenario on the real machine, from beginning to end.

use std::sync::Arc;

use super::{Codec, Deliveries, Found, Resize, Samples, Scenario, Verdict};
use crate::{
    codec::{self, Decoder, DecoderError, Target},
    device::HostDevice,
    document::{Diagnostic, Trouble},
    loader::{self, DecodeImage, Outcome, Resolved},
    machine::real::{self, Reads},
    measure::{self, MeasureError, Run},
    report::{Facts, Metrics},
    source::Source,
    trace::{LeafTimes, Recorder, StageId},
};

/// What a measured scenario came to.
pub struct Measured {
    /// The figures.
    pub metrics: Metrics,
    /// The loader's books.
    pub outcome: Outcome,
    /// Whether what was expected holds.
    pub verdicts: Vec<Verdict>,
    /// The error that the consumer got, when it got one.
    pub error: Option<loader::Error>,
    /// What every leaf took; empty unless [`Scenario::measure_leaves`] was asked.
    pub leaf_times: LeafTimes,
    /// The trace, and whatever its recorder was told to do with it.
    pub recorder: Recorder,
}

/// Why a scenario could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasuringError {
    /// The scenario does not fit the images, or itself.
    #[error(transparent)]
    Input(#[from] Trouble),
    /// The machine failed.
    #[error(transparent)]
    Machine(#[from] MeasureError),
}

impl Scenario {
    /// What the scenario's images are brought to.
    pub fn target(&self) -> Target {
        let size = self.loader.size;
        let fit = match self.loader.resize {
            Resize::Squash => codec::Fit::Squash,
            Resize::CenterCrop => codec::Fit::CenterCrop { shorter: center_crop_shorter(size.width.max(size.height)) },
        };
        Target { width: size.width, height: size.height, fit }
    }

    /// The decoder that the scenario asks for.
    ///
    /// # Errors
    ///
    /// When this computer does not have it.
    pub fn decoder(&self) -> Result<Decoder, Trouble> {
        let choice = match self.loader.codec {
            Codec::Auto => codec::Choice::Auto,
            Codec::Rust => codec::Choice::Rust,
            Codec::Turbo => codec::Choice::Turbo,
        };
        Decoder::new(choice, self.target()).map_err(|error| {
            let field = match error {
                DecoderError::NoTurbo { .. } => "loader.codec",
                _ => "loader.size",
            };
            Diagnostic::new(error.to_string()).at(self.places.of(field)).into()
        })
    }

    /// Runs the loader on this computer: `source` holds the images, of the sizes in `samples`; the consumer, on this thread, does what
    /// `[consumer]` says. The images are read from where they are, whatever the scenario says of its store, unless that is
    /// [emulated](super::EMULATED): then every read waits as it says.
    ///
    /// # Errors
    ///
    /// When scenario and images do not fit together, or a thread is lost. An error that the loader ends with is no error here: it
    /// is what was measured.
    pub fn measure(&self, source: Arc<dyn Source>, samples: &Samples, recorder: Recorder) -> Result<Measured, MeasuringError> {
        self.measure_with(source, samples, recorder, false)
    }

    /// The same, and what every leaf took, for [`Scenario::replay`]. It costs two system calls and 48 bytes a leaf.
    ///
    /// # Errors
    ///
    /// As [`Scenario::measure`].
    pub fn measure_leaves(
        &self,
        source: Arc<dyn Source>,
        samples: &Samples,
        recorder: Recorder,
    ) -> Result<Measured, MeasuringError> {
        self.measure_with(source, samples, recorder, true)
    }

    fn measure_with(
        &self,
        source: Arc<dyn Source>,
        samples: &Samples,
        recorder: Recorder,
        leaf_cpu: bool,
    ) -> Result<Measured, MeasuringError> {
        self.only_ours("can be simulated, and not run")?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.loader.threads.map_or(cores, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let decoder = self.decoder()?;
        let settings = self.settings(threads as u64, samples)?;
        let resolved = settings.resolve().expect("`Scenario::settings` has resolved them");
        let facts = self.measured_facts(&decoder, cores, threads, &resolved);
        let servers = [cores, threads, resolved.settings.lanes, resolved.settings.decode_limit.unwrap_or(usize::MAX)];
        let servers = servers.into_iter().min().unwrap_or(1);
        let recorder = recorder.preparation_servers(u32::try_from(servers).unwrap_or(u32::MAX));
        let store_delay = self.emulated()?.map(|store| Arc::new(store) as Arc<dyn real::StoreDelay>);
        let said = self.store.connections.and_then(|n| usize::try_from(n).ok());
        let (connections, remote) = (said.filter(|_| store_delay.is_some()), said.filter(|_| source.io().is_some()));
        let device = match self.consumer.link {
            Some(link) => HostDevice::linked(link.as_bytes_per_s()).map_err(|e| MeasureError::Launch(e.into()))?,
            None => HostDevice::new(),
        };
        let config = real::Config {
            device: Arc::new(device),
            store_delay,
            blocking_threads: connections.unwrap_or(real::Config::BLOCKING_THREADS),
            connections: remote,
            threads,
            seed: self.seed,
            reads: Reads::Auto,
            faults: self.faults.clone(),
            leaf_cpu,
            ..real::Config::new(source)
        };
        let consumer = measure::Consumer {
            start_up: self.consumer.start_up.to_std(),
            step: self.consumer.step_duration(),
            hold: usize::try_from(self.consumer.hold).unwrap_or(usize::MAX),
            leave_after: self.consumer.leave_after,
        };
        let mut deliveries = Deliveries::new(&resolved);
        let run =
            measure::measure(config, resolved, DecodeImage::new(decoder), consumer, recorder, |batch| deliveries.take(batch))?;
        let findings = deliveries.finish(&run.outcome);
        let facts = Facts {
            cpu_s: Some(run.cpu_ns as f64 / 1e9),
            peak_rss_bytes: run.peak_rss_bytes.map(|(bytes, _)| bytes),
            taken_by_others: run
                .shares
                .filter(|shares| shares.busy > CROWDED && shares.others > NOTICED)
                .map(|shares| shares.others),
            ..facts
        };
        let metrics = Metrics::of(&run.recorder, &facts);
        let verdicts = self.expect.check(&Found::of(&metrics, &findings));
        let Run { outcome, leaf_times, end, recorder, .. } = run;
        Ok(Measured { metrics, outcome, verdicts, error: end.err(), leaf_times, recorder })
    }

    fn measured_facts(&self, decoder: &Decoder, cores: usize, threads: usize, resolved: &Resolved) -> Facts {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let settings = &resolved.settings;
        let mut limits = Vec::new();
        limits.extend(settings.fetch_limit.map(|n| (StageId::FETCH, count(n))));
        limits.extend(settings.decode_limit.map(|n| (StageId::DECODE, count(n))));
        Facts {
            machine: "this computer".to_owned(),
            device: match self.consumer.link {
                Some(link) => format!("host, over an emulated link of {link}"),
                None => "host".to_owned(),
            },
            codec: Some(decoder.description()),
            cores: count(cores),
            threads: count(threads),
            lanes: count(settings.lanes),
            ring_slots: resolved.ring as u64,
            prefetch_batches: settings.prefetch as u64,
            copies: count(settings.copies),
            limits,
            ledger_bytes: Some(resolved.ledger_bytes),
            budget_bytes: Some(settings.budget_bytes),
            fixed_bytes: resolved.fixed_bytes,
            ..Facts::default()
        }
    }
}

/// Processors that are busier than this have nothing to spare, so that processes take time from each other.
const CROWDED: f64 = 0.8;
/// Less than this others use on any computer.
const NOTICED: f64 = 0.05;

/// torchvision's recipe: the shorter side is scaled to 8/7 of what is cut out, 256 for 224.
fn center_crop_shorter(longer: u32) -> u32 {
    longer.saturating_mul(8).div_ceil(7)
}
