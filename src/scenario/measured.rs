//! A scenario on the real machine, from beginning to end.

use std::sync::Arc;

use super::{
    Codec, Deliveries, DeviceStage, Found, Resize, Samples, Scenario, Verdict,
    ended::Ended,
    expect::{name_the_rank, only_so_far},
};
use crate::{
    codec::{self, Decoder, DecoderError, Target},
    device::{
        Device, HostDevice,
        cuda::{CudaDevice, CudaError, NormalizeStage, TrainStep},
    },
    document::{Diagnostic, Trouble},
    loader::{self, Batch, DecodeImage, Outcome, Resolved, stage::BatchStage},
    machine::real::{self, Reads},
    measure::{self, MeasureError, Meeting, Rank, RankEnd, Run, Train},
    report::{Facts, Metrics},
    source::Source,
    sync::Party,
    trace::{LeafTimes, Recorder},
    units::Count,
};

/// What a measured scenario came to.
pub struct Measured {
    /// The figures.
    pub metrics: Metrics,
    /// The loader's books.
    pub outcome: Outcome,
    /// Whether what was expected holds.
    pub verdicts: Vec<Verdict>,
    /// The error that the consumer got, when it got one: that of the first rank that did.
    pub error: Option<loader::Error>,
    /// The rank whose consumer got it, where there are several.
    pub failed_rank: Option<u16>,
    /// What every leaf took; empty unless [`Way::leaf_cpu`] asks for it.
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
    /// A GPU failed before the loader began.
    #[error("a GPU cannot be used: {0}")]
    Gpu(String),
}

/// What else there is to say about a run.
#[derive(Default)]
pub struct Way {
    /// Keeps what every leaf took, for [`Scenario::replay`]. It costs two system calls and 48 bytes a leaf.
    pub leaf_cpu: bool,
    /// For one rank whose others are processes of their own: where it waits for them after every step, unless the scenario says that ranks
    /// do not.
    pub meeting: Option<Box<dyn Meeting>>,
    /// Where batches go and what trains on them; `None` for the host.
    pub gpus: Option<Gpus>,
}

/// GPUs that ranks train on: rank `r` on the one at `r` modulo their number.
#[derive(Clone, Debug)]
pub struct Gpus {
    /// At least one.
    pub devices: Vec<CudaDevice>,
    /// How much of a GPU a train step occupies, from 0 to 1.
    pub share: f64,
}

/// What of a rank is on a device.
struct OnDevice<D: Device<u8>> {
    /// A device of its own.
    device: Option<Arc<D>>,
    /// What does its train steps.
    train: Option<Box<dyn Train<D::Batch>>>,
    /// The stage that its batches go through.
    stage: Option<Arc<dyn BatchStage<D::Batch>>>,
}

impl Gpus {
    /// The one that the process of this local rank trains on: at that place, modulo their number.
    pub fn only(self, local_rank: usize) -> Gpus {
        let place = local_rank.checked_rem(self.devices.len()).unwrap_or(0);
        Gpus { devices: self.devices.into_iter().skip(place).take(1).collect(), ..self }
    }

    /// Those that so many ranks train on.
    fn words(&self, count: usize) -> String {
        let names: Vec<String> = self.devices.iter().take(count).map(|device| format!("{:?}", device.context())).collect();
        names.join(", ")
    }

    /// Processors for so many threads that are near all of them; `None` where these are too few, or no nearer than others.
    fn near(&self, threads: usize) -> Option<Arc<[usize]>> {
        let near = self.devices.first()?.near()?;
        let all_there = self.devices.iter().all(|device| device.near() == Some(near));
        (all_there && threads <= near.len()).then(|| near.into())
    }

    /// Where `count` ranks train, with this stage for images of that size before it.
    fn steps(&self, count: usize, stage: Option<DeviceStage>, target: Target) -> Result<Vec<OnDevice<CudaDevice>>, CudaError> {
        let all = self.devices.iter().cycle().take(count);
        all.map(|device| {
            let step = TrainStep::new(device.context(), self.share)?;
            let stage = match stage {
                Some(DeviceStage::Normalize) => {
                    let stage = NormalizeStage::imagenet(device.context(), target.width as usize, target.height as usize)?;
                    Some(Arc::new(stage) as Arc<dyn BatchStage<_>>)
                }
                None => None,
            };
            Ok(OnDevice { device: Some(Arc::new(device.clone())), train: Some(Box::new(step)), stage })
        })
        .collect()
    }
}

/// What every rank of a run has.
struct Ranks<'a> {
    plans: Vec<Resolved>,
    meetings: Vec<Option<Box<dyn Meeting>>>,
    deliveries: &'a mut [Deliveries],
    decoder: &'a Decoder,
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

    /// Runs the loader on this computer, or those of all ranks: `source` holds the images, of the sizes in `samples`; the consumer, on this
    /// thread, or one on a thread of its own for each rank, does what `[consumer]` says. The images are read from where they are, whatever
    /// the scenario says of its store, unless that is [emulated](super::EMULATED): then every read waits as it says.
    ///
    /// # Errors
    ///
    /// When scenario and images do not fit together, or a thread is lost. An error that the loader ends with is no error here: it
    /// is what was measured.
    pub fn measure(&self, source: Arc<dyn Source>, samples: &Samples, recorder: Recorder) -> Result<Measured, MeasuringError> {
        self.measure_as(source, samples, recorder, Way::default())
    }

    /// The same in another way.
    ///
    /// # Errors
    ///
    /// As [`Scenario::measure`], and when a GPU fails before the loader begins.
    pub fn measure_as(
        &self,
        source: Arc<dyn Source>,
        samples: &Samples,
        recorder: Recorder,
        way: Way,
    ) -> Result<Measured, MeasuringError> {
        self.only_ours("can be simulated, and not run")?;
        self.only_here()?;
        self.only_so_many_threads()?;
        let Way { leaf_cpu, meeting, gpus } = way;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.loader.threads.map_or(cores, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let decoder = self.decoder()?;
        let settings = self.settings(threads as u64, samples)?;
        let resolved = settings.resolve().expect("`Scenario::settings` has resolved them");
        let servers = [cores, threads, resolved.settings.lanes, resolved.settings.decode_limit.unwrap_or(usize::MAX)];
        let servers = servers.into_iter().min().unwrap_or(1);
        let recorder = recorder.preparation_servers(u32::try_from(servers).unwrap_or(u32::MAX));
        let store_delay = self.emulated()?.map(|store| Arc::new(store) as Arc<dyn real::StoreDelay>);
        let said = self.store.connections.and_then(|n| usize::try_from(n).ok());
        let (connections, remote) = (said.filter(|_| store_delay.is_some()), said.filter(|_| source.io().is_some()));
        let config = real::Config {
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
        let plans = self.of_ranks(&resolved)?;
        let mut deliveries: Vec<Deliveries> = plans.iter().map(Deliveries::new).collect();
        let ranks = Ranks { plans, meetings: self.meetings(meeting), deliveries: &mut deliveries, decoder: &decoder };
        let (run, device) = match gpus {
            Some(gpus) => {
                self.only_real_links()?;
                let first = gpus
                    .devices
                    .first()
                    .cloned()
                    .ok_or_else(|| Diagnostic::new("there is no GPU to run on"))
                    .map_err(Trouble::from)?;
                let device = gpus.words(ranks.plans.len());
                let config = real::Config { near: gpus.near(threads), ..config };
                let all = gpus.steps(ranks.plans.len(), self.loader.device_stage, self.target());
                let steps = all.map_err(|error| MeasuringError::Gpu(error.to_string()))?;
                (self.run_ranks(config.with_device(first), ranks, steps, recorder)?, device)
            }
            None => {
                self.no_device_stage()?;
                let (device, words) = match self.consumer.link {
                    Some(link) => {
                        let device = HostDevice::linked(link.as_bytes_per_s()).map_err(|e| MeasureError::Launch(e.into()))?;
                        (device, format!("host, over an emulated link of {link}"))
                    }
                    None => (HostDevice::new(), "host".to_owned()),
                };
                let steps = ranks.plans.iter().map(|_| OnDevice { device: None, train: None, stage: None }).collect();
                (self.run_ranks(config.with_device(device), ranks, steps, recorder)?, words)
            }
        };
        let facts = self.measured_facts(&decoder, device, cores, threads, &resolved);
        let Run { outcome, others, leaf_times, end, recorder, .. } = run;
        let ends = std::iter::once(RankEnd { outcome, end }).chain(others);
        let ended = deliveries.into_iter().zip(ends).map(|(deliveries, RankEnd { outcome, end })| {
            let findings = deliveries.finish(&outcome);
            Ended { outcome, findings, error: end.err() }
        });
        let ended: Vec<Ended> = ended.collect();
        let peaks: Vec<u64> = ended.iter().map(Ended::peak_bytes).collect();
        let (Ended { outcome, findings, error }, failed_rank) = Ended::of_ranks(ended);
        let facts = Facts {
            cpu_s: Some(run.cpu_ns as f64 / 1e9),
            peak_rss_bytes: run.peak_rss_bytes.map(|(bytes, _)| bytes),
            taken_by_others: run
                .shares
                .filter(|shares| shares.busy > CROWDED && shares.others > NOTICED)
                .map(|shares| shares.others),
            ..facts
        };
        let mut metrics = Metrics::of(&recorder, &facts);
        metrics.tell_peaks(&peaks);
        let mut verdicts = self.expect.check(&Found::of(&metrics, &findings));
        name_the_rank(&mut verdicts, &metrics.ranks);
        if error.is_some() {
            only_so_far(&mut verdicts);
        }
        Ok(Measured { metrics, outcome, verdicts, error, failed_rank, leaf_times, recorder })
    }

    /// Runs every rank with a device and a train step of its own, where it has them.
    fn run_ranks<D: Device<u8>>(
        &self,
        config: real::Config<D>,
        ranks: Ranks<'_>,
        steps: Vec<OnDevice<D>>,
        recorder: Recorder,
    ) -> Result<Run, MeasureError> {
        let consumer = measure::Consumer {
            start_up: self.consumer.start_up.to_std(),
            step: self.consumer.step_duration(),
            hold: usize::try_from(self.consumer.hold).unwrap_or(usize::MAX),
            leave_after: self.consumer.leave_after,
        };
        let Ranks { plans, meetings, deliveries, decoder } = ranks;
        let each = plans.into_iter().zip(meetings).zip(steps).zip(deliveries);
        let ranks = each.map(|(((resolved, meeting), OnDevice { device, train, stage }), deliveries)| Rank {
            resolved,
            device,
            on_device: stage,
            fill: DecodeImage::new(decoder.clone()),
            consumer,
            train,
            meeting,
            look: |batch: &Batch<D::Batch, u8>| deliveries.take(batch),
        });
        measure::measure_ranks(config, ranks.collect(), recorder)
    }

    /// Refuses a link that is emulated beside one that is there.
    fn only_real_links(&self) -> Result<(), Trouble> {
        let Some(link) = self.consumer.link else { return Ok(()) };
        let wrong = Diagnostic::new(format!("a link of {link} is emulated on the host, and a GPU has one of its own"));
        Err(wrong.at(self.places.of("consumer.link")).hint("leave it out, or run with `--device host`").into())
    }

    /// Refuses more threads than a process can have: one for each rank's consumer, the pool's, and those of emulated connections. A system
    /// that refuses one as it begins ends the whole process.
    ///
    /// # Errors
    ///
    /// When there are more.
    pub fn only_so_many_threads(&self) -> Result<(), Trouble> {
        let connections = self.store.connections.filter(|_| self.store.kind == super::EMULATED);
        let bounds = [
            ("ranks.count", Some(u64::from(self.ranks.count)), RANKS_MOST),
            ("loader.threads", self.loader.threads, THREADS_MOST),
            ("store.connections", connections, THREADS_MOST),
        ];
        let Some((field, value, most)) = bounds
            .into_iter()
            .find_map(|(field, value, most)| Some((field, value?, most)).filter(|(_, value, most)| value > most))
        else {
            return Ok(());
        };
        let (value, most) = (Count(value), Count(most));
        let wrong =
            Diagnostic::new(format!("`{field} = {value}` can be simulated, and not run: each is a thread of this process"));
        let hint = "`towtank sim` simulates more; `torchrun` runs each rank as a process of its own";
        Err(wrong.at(self.places.of(field)).expected(format!("at most {most}")).hint(hint).into())
    }

    /// Refuses a stage on the device where that is the host.
    fn no_device_stage(&self) -> Result<(), Trouble> {
        let Some(stage) = self.loader.device_stage else { return Ok(()) };
        let wrong = Diagnostic::new(format!("the stage `{}` runs on a GPU, and batches stay on the host here", stage.name()));
        let wrong = wrong.at(self.places.of("loader.device_stage"));
        Err(wrong.hint("run it with `--device cuda:0`, or simulate it: `towtank sim`").into())
    }

    /// Refuses ranks on several nodes, of which this computer is one.
    ///
    /// # Errors
    ///
    /// When there are several.
    pub fn only_here(&self) -> Result<(), Trouble> {
        let nodes = self.ranks.nodes();
        if nodes <= 1 {
            return Ok(());
        }
        let wrong = Diagnostic::new(format!("ranks on {nodes} nodes can be simulated, and not run: this computer is one"));
        let hint = format!("`--set ranks.per_node={}` has them all run here", self.ranks.count);
        Err(wrong.at(self.places.of("ranks.per_node")).hint(hint).into())
    }

    /// Where each rank of this process waits for others: for each other, where there are several and the scenario says so; one alone for
    /// those of other processes.
    fn meetings(&self, elsewhere: Option<Box<dyn Meeting>>) -> Vec<Option<Box<dyn Meeting>>> {
        let count = u32::from(self.ranks.count);
        match self.ranks.barrier {
            true if count > 1 => Party::of(count).into_iter().map(|party| Some(Box::new(party) as Box<dyn Meeting>)).collect(),
            true => vec![elsewhere],
            false => (0..count).map(|_| None).collect(),
        }
    }

    fn measured_facts(&self, decoder: &Decoder, device: String, cores: usize, threads: usize, resolved: &Resolved) -> Facts {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Facts {
            machine: "this computer".to_owned(),
            device,
            codec: Some(decoder.description()),
            cores: count(cores),
            threads: count(threads),
            ..self.facts_of_loaders(resolved)
        }
    }
}

/// The most ranks that one process runs.
const RANKS_MOST: u64 = 1024;
/// The most threads of a kind that one process starts.
const THREADS_MOST: u64 = 4096;
/// Processors that are busier than this have nothing to spare, so that processes take time from each other.
const CROWDED: f64 = 0.8;
/// Less than this others use on any computer.
const NOTICED: f64 = 0.05;

/// torchvision's recipe: the shorter side is scaled to 8/7 of what is cut out, 256 for 224.
fn center_crop_shorter(longer: u32) -> u32 {
    longer.saturating_mul(8).div_ceil(7)
}
