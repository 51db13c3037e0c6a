//! The loader for a user's program: a builder, and batches from a blocking iterator or an async stream.

use std::{num::NonZeroUsize, path::Path, sync::Arc, thread, time::Duration};

use super::{Allowance, DecodeImage, Fill, OnError, Order, Retries, Settings, SettingsError, Stage, State, Tail, stage};
#[cfg(feature = "remote")]
use crate::source::{Remote, RemoteError};
use crate::{
    codec::{Choice, Decoder, DecoderError, Fit, Target},
    device::{Device, HostDevice},
    failure::Failure,
    machine::{
        Encoded, Item, Pixels, Work,
        real::{self, LaunchError, RealMachine},
    },
    source::{Folder, FolderError, Source},
    trace::{Recorder, StageId},
};

mod on_device;
mod running;

pub use on_device::{After, OnDevice};
pub use running::{Loader, RankLoader, RunError, Running, RunningRanks, launch, launch_ranks};

/// Samples under way at once from a source that waits for a network, at least.
const REMOTE_LANES: usize = 32;

/// Why a loader did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The folder of images cannot be read, or holds none.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The store cannot be reached or refuses, or it has no images.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// There is no such decoder, or the size makes no sense.
    #[error(transparent)]
    Decoder(#[from] DecoderError),
    /// The settings do not fit together.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A thread could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// What happens to a sample before its slot, as a value that can go to the scheduler's thread and become a [`Stage`] there.
pub trait Steps: Send + 'static {
    /// What they make of a sample.
    type Out: Send + 'static;

    /// Number of the user's stages among them.
    fn count(&self) -> u8;
    /// Becomes the stage of a machine whose batches go to a device `D`.
    fn stage<D: Device<u8>>(self, settings: &Settings) -> impl Stage<RealMachine<Pixels, D>, (), Out = Self::Out> + use<Self, D>;
}

/// Reading, and nothing else: where every loader begins.
#[derive(Clone, Copy, Debug)]
pub struct Read;

impl Steps for Read {
    type Out = Encoded;

    fn count(&self) -> u8 {
        0
    }
    fn stage<D: Device<u8>>(self, settings: &Settings) -> impl Stage<RealMachine<Pixels, D>, (), Out = Encoded> + use<D> {
        stage::fetch(settings)
    }
}

/// Steps, and a function on a core after them.
#[derive(Clone, Copy, Debug)]
pub struct Map<S, F> {
    before: S,
    name: &'static str,
    function: F,
}

impl<S, F, Out> Steps for Map<S, F>
where
    S: Steps,
    F: Fn(Item, S::Out) -> Result<Out, Failure> + Send + Sync + 'static,
    Out: Send + 'static,
{
    type Out = Out;

    fn count(&self) -> u8 {
        self.before.count() + 1
    }
    fn stage<D: Device<u8>>(self, settings: &Settings) -> impl Stage<RealMachine<Pixels, D>, (), Out = Out> + use<S, F, Out, D> {
        // The real machine takes the time it takes; nobody prices the work.
        fn unpriced<In>(_: Item, _: &In) -> Work {
            Work { kind: "stage", bytes: 0, pixels: 0 }
        }
        let id = StageId::user(self.before.count());
        let cpu = stage::Cpu::new(id, self.name, unpriced as fn(Item, &S::Out) -> Work, self.function);
        stage::Then(self.before.stage(settings), cpu)
    }
}

/// The last step, once its settings are complete.
pub trait Last<In> {
    /// What fills slots.
    type Fill: Fill<Pixels, In>;

    /// Bytes of a decoded sample.
    fn slot_bytes(&self) -> usize;
    /// Memory that each thread of the pool holds for it \[B\].
    fn scratch_bytes(&self) -> u64;
    /// Becomes what fills slots.
    ///
    /// # Errors
    ///
    /// When this computer lacks what it needs.
    fn fill(self) -> Result<Self::Fill, StartError>;
}

/// Decoding images.
#[derive(Clone, Debug)]
pub struct Images {
    choice: Choice,
    target: Target,
    largest_pixels: u64,
}

impl Last<Encoded> for Images {
    type Fill = DecodeImage;

    fn slot_bytes(&self) -> usize {
        self.target.bytes()
    }
    fn scratch_bytes(&self) -> u64 {
        3 * self.largest_pixels
    }
    fn fill(self) -> Result<DecodeImage, StartError> {
        Ok(DecodeImage::new(Decoder::new(self.choice, self.target)?))
    }
}

/// A user's last step.
#[derive(Clone, Copy, Debug)]
pub struct FillWith<F> {
    slot_bytes: usize,
    function: F,
}

impl<In, F> Last<In> for FillWith<F>
where
    In: Send + 'static,
    F: Fn(Item, In, &mut [u8]) -> Result<(), Failure> + Send + Sync + 'static,
{
    type Fill = FillWith<F>;

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }
    fn scratch_bytes(&self) -> u64 {
        0
    }
    fn fill(self) -> Result<FillWith<F>, StartError> {
        Ok(self)
    }
}

impl<In, F> Fill<Pixels, In> for FillWith<F>
where
    In: Send + 'static,
    F: Fn(Item, In, &mut [u8]) -> Result<(), Failure> + Send + Sync + 'static,
{
    fn work(&self, _: Item, _: &In) -> Work {
        Work { kind: "decode", bytes: 0, pixels: 0 }
    }
    fn fill(&self, item: Item, input: In, out: &mut [u8]) -> Result<(), Failure> {
        (self.function)(item, input, out)
    }
}

/// A loader that is not running yet. [`Loader::images`] and [`Loader::from_source`] begin one.
#[must_use = "a builder does nothing until `start`"]
pub struct Builder<S, L, A = ()> {
    source: Arc<dyn Source>,
    steps: S,
    last: L,
    after: A,
    settings: Settings,
    lanes: Option<usize>,
    threads: Option<usize>,
}

impl Loader {
    /// A loader of the images, JPEG and PNG, in a folder and all below it, in the order of their paths, as 224×224 RGB. The
    /// URL of an object store, such as `s3://bucket/train`, may stand for the folder, where the feature `remote` is on.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read or holds no image.
    ///
    /// ```no_run
    /// # fn train(pixels: &[u8], samples: Vec<u64>) {}
    /// use towtank::loader::Loader;
    ///
    /// let mut loader = Loader::images("data/train")?.size(224, 224).batch(64).shuffle(42).epochs(3).workers(8).start()?;
    /// for batch in &mut loader {
    ///     let batch = batch?;
    ///     train(batch.pixels(), batch.samples().collect()); // [64, 224, 224, 3] u8
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn images(folder: impl AsRef<Path>) -> Result<Builder<Read, Images>, StartError> {
        let folder = folder.as_ref();
        #[cfg(feature = "remote")]
        if let Some(url) = folder.to_str().filter(|text| Remote::is_url(text)) {
            return Ok(Loader::from_source(Remote::images(url)?).decoded());
        }
        Ok(Loader::from_source(Folder::images(folder)?).decoded())
    }

    /// A loader of anything: its samples are read from `source`, go through the user's [stages](Builder::stage), and are written into
    /// the batch by [`fill`](Builder::fill).
    ///
    /// ```
    /// use towtank::{loader::Loader, source::Memory};
    ///
    /// let lines = Memory::new(vec![b"one two".to_vec(), b"three".to_vec(), b"four five six".to_vec()]);
    /// let loader = Loader::from_source(lines)
    ///     .stage("split", |_item, text| Ok(text.data.split(|b| *b == b' ').map(<[u8]>::len).collect::<Vec<_>>()))
    ///     .fill(4, |_item, lengths, out| {
    ///         out.fill(0);
    ///         out.iter_mut().zip(lengths).for_each(|(o, n)| *o = n as u8);
    ///         Ok(())
    ///     })
    ///     .batch(2)
    ///     .start()?;
    /// let batches = loader.map(|batch| batch.map(|b| b.pixels().to_vec())).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(batches, [vec![3, 3, 0, 0, 5, 0, 0, 0], vec![4, 4, 3, 0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_source(source: impl Source) -> Builder<Read, ()> {
        let source: Arc<dyn Source> = Arc::new(source);
        let samples = source.len();
        let mut settings = Settings::new(samples, 32, 1);
        if let Some(most) = (0..samples).map(|sample| source.bytes_bound(sample)).max().flatten() {
            settings.sample_bytes = most.max(1);
        }
        settings.dataset = fingerprint(&*source);
        Builder { source, steps: Read, last: (), after: (), settings, lanes: None, threads: None }
    }
}

/// A number that changes when samples are added, removed or renamed: FNV-1a over the number of samples and the names of up to 1024 of
/// them, evenly spaced.
fn fingerprint(source: &dyn Source) -> u64 {
    let samples = source.len();
    let looked_at = samples.min(1024);
    let names = (0..looked_at).map(|k| source.name((u128::from(k) * u128::from(samples) / u128::from(looked_at)) as u64));
    let bytes = names.flat_map(|name| name.into_bytes().into_iter().chain([0]));
    samples
        .to_le_bytes()
        .into_iter()
        .chain(bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl Builder<Read, ()> {
    /// The samples are images, JPEG or PNG, which are brought to 224×224 RGB.
    pub fn decoded(self) -> Builder<Read, Images> {
        let last = Images { choice: Choice::Auto, target: Target::square(224), largest_pixels: 4 << 20 };
        let Builder { source, steps, last: (), after, settings, lanes, threads } = self;
        Builder { source, steps, last, after, settings, lanes, threads }
    }
}

impl<S: Steps> Builder<S, ()> {
    /// A stage of the user's: `function` runs on a core for every sample, called `name` in traces. A panic in it fails the sample.
    ///
    /// # Panics
    ///
    /// When there are more than 56 of them.
    pub fn stage<F, Out>(self, name: &'static str, function: F) -> Builder<Map<S, F>, ()>
    where
        F: Fn(Item, S::Out) -> Result<Out, Failure> + Send + Sync + 'static,
        Out: Send + 'static,
    {
        let Builder { source, steps, last, after, settings, lanes, threads } = self;
        Builder { source, steps: Map { before: steps, name, function }, last, after, settings, lanes, threads }
    }

    /// The last step: `function` writes the sample into its `slot_bytes` bytes of the batch, on a core.
    pub fn fill<F>(self, slot_bytes: usize, function: F) -> Builder<S, FillWith<F>>
    where
        F: Fn(Item, S::Out, &mut [u8]) -> Result<(), Failure> + Send + Sync + 'static,
    {
        let Builder { source, steps, last: (), after, settings, lanes, threads } = self;
        Builder { source, steps, last: FillWith { slot_bytes, function }, after, settings, lanes, threads }
    }
}

impl<S, A> Builder<S, Images, A> {
    /// Width and height that images are brought to \[px\]; 224×224 when left out.
    pub fn size(mut self, width: u32, height: u32) -> Self {
        (self.last.target.width, self.last.target.height) = (width, height);
        self
    }

    /// How images of other shapes are brought to the size; squashed when left out.
    pub fn fit(mut self, fit: Fit) -> Self {
        self.last.target.fit = fit;
        self
    }

    /// The JPEG decoder; libjpeg-turbo where the computer has it, else pure Rust, when left out.
    pub fn codec(mut self, choice: Choice) -> Self {
        self.last.choice = choice;
        self
    }

    /// Pixels of the largest image: each worker's share of the budget for a frame at full size. 4 Mi when left out; larger images
    /// are decoded all the same, beyond the budget.
    pub fn largest_image(mut self, pixels: u64) -> Self {
        self.last.largest_pixels = pixels;
        self
    }
}

impl<S, L> Builder<S, L> {
    /// A stage of the user's on the device: every batch goes through `stage` between its copy and the consumer, at most `limit` of them at
    /// once. Such as [`NormalizeStage`](crate::device::cuda::NormalizeStage) on a GPU; on the host it runs on the pool's threads.
    ///
    /// ```
    /// use towtank::{failure::Failure, loader::{Loader, stage::BatchStage}, machine::Work, source::Memory};
    ///
    /// /// Turns dark into light, in place.
    /// struct Invert;
    ///
    /// impl BatchStage<Vec<u8>> for Invert {
    ///     fn name(&self) -> &'static str {
    ///         "invert"
    ///     }
    ///     fn work(&self, samples: usize) -> Work {
    ///         Work { kind: "invert", bytes: samples as u64, pixels: 0 }
    ///     }
    ///     fn run(&self, batch: &mut Vec<u8>, samples: usize) -> Result<(), Failure> {
    ///         batch[..samples].iter_mut().for_each(|cell| *cell = !*cell);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let loader = Loader::from_source(Memory::new(vec![vec![0], vec![1], vec![2]]))
    ///     .fill(1, |_item, byte, out| {
    ///         out.copy_from_slice(&byte.data);
    ///         Ok(())
    ///     })
    ///     .batch(2)
    ///     .device_stage(1, Invert)
    ///     .start()?;
    /// let batches = loader.map(|batch| batch.map(|b| b.pixels().to_vec())).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(batches, [vec![255, 254], vec![253]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn device_stage<T>(self, limit: usize, stage: T) -> Builder<S, L, OnDevice<T>> {
        let Builder { source, steps, last, after: (), settings, lanes, threads } = self;
        Builder { source, steps, last, after: OnDevice::new(stage, limit), settings, lanes, threads }
    }
}

impl<S, L, A> Builder<S, L, A> {
    /// Samples in a batch; 32 when left out.
    pub fn batch(mut self, samples: usize) -> Self {
        self.settings.batch = samples;
        self
    }

    /// Shuffles anew in every epoch, by this seed; the source's own order when left out.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.settings.shuffle = Some(seed);
        self
    }

    /// Passes over the samples; 1 when left out.
    pub fn epochs(mut self, epochs: u32) -> Self {
        self.settings.epochs = epochs;
        self
    }

    /// Threads that read and decode; one for each core when left out.
    pub fn workers(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Samples under way at once; four for each worker when left out, and at least 32 of an object store. More of them hide the latency of a slow store.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// All memory of the loader \[B\]; 1 GiB when left out.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.budget_bytes = bytes;
        self
    }

    /// Batches that are made ready ahead; 2 when left out.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.settings.prefetch = batches;
        self
    }

    /// Batches that you keep at once; 1 when left out.
    pub fn held(mut self, batches: usize) -> Self {
        self.settings.held = batches;
        self
    }

    /// Which order batches come in; as planned when left out.
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// Leaves out an epoch's last batch when it is not full.
    pub fn drop_last(mut self) -> Self {
        self.settings.drop_last = true;
        self
    }

    /// Leaves out samples that fail, and counts them by reason; the first one ends the loader when this is left out.
    pub fn skip_failures(mut self, at_most: Allowance) -> Self {
        self.settings.on_error = OnError::Skip { at_most };
        self
    }

    /// This rank of so many, and what ranks do when samples do not divide evenly.
    pub fn rank(mut self, rank: u16, world: u16, tail: Tail) -> Self {
        (self.settings.rank, self.settings.world, self.settings.tail) = (rank, world, tail);
        self
    }

    /// How failed reads are tried again.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.settings.retries = retries;
        self
    }

    /// The longest that a read may take, each try for itself.
    pub fn read_deadline(mut self, deadline: Duration) -> Self {
        self.settings.fetch_deadline = Some(deadline);
        self
    }

    /// Goes on after the batch that carried this state.
    pub fn resume(mut self, state: State) -> Self {
        self.settings.resume = Some(state);
        self
    }

    /// Everything else there is to set. What [`Builder`] has a method for is best set there.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Starts it with batches on the host.
    ///
    /// # Errors
    ///
    /// When the settings do not fit together, this computer lacks the decoder, or a thread cannot be started.
    pub fn start(self) -> Result<Loader, StartError>
    where
        S: Steps,
        L: Last<S::Out>,
        A: After<Vec<u8>>,
    {
        self.start_on(HostDevice::new())
    }

    /// Starts it with batches on `device`, such as a [`CudaDevice`](crate::device::cuda::CudaDevice).
    ///
    /// # Errors
    ///
    /// As [`start`](Builder::start).
    pub fn start_on<D: Device<u8>>(self, device: D) -> Result<Loader<D>, StartError>
    where
        S: Steps,
        L: Last<S::Out>,
        A: After<D::Batch>,
    {
        let Builder { source, steps, last, after, mut settings, lanes, threads } = self;
        let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get));
        // A store far away is asked for much at once, which costs it no thread.
        let waiting = if source.io().is_some() { REMOTE_LANES } else { 1 };
        settings.lanes = lanes.unwrap_or((4 * threads).max(waiting));
        settings.slot_bytes = last.slot_bytes();
        settings.scratch_bytes = last.scratch_bytes().saturating_mul(threads as u64);
        let config = real::Config { threads, seed: settings.shuffle.unwrap_or(0), ..real::Config::new(source) };
        let config = config.with_device(device);
        let on_device = after.stage(&mut settings);
        let (resolved, fill) = (settings.resolve()?, last.fill()?);
        let alone =
            RankLoader { resolved, device: None, stages: move |settings: &Settings| steps.stage::<D>(settings), fill, on_device };
        let running = running::launch_alone(config, alone, Recorder::new())?;
        Ok(Loader::new(running))
    }
}
