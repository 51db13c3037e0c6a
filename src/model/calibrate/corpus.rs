//! The images that calibration decodes, and the loader that runs over them under observation.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{CalibrateError, SEED, fit::Sample, median};
use crate::{
    codec::{self, Decoder},
    failure::Failure,
    loader::{Fill, Settings},
    machine::{
        Encoded, Item, Op, Pixels, Work,
        real::{self, Reads, StoreDelay, usage},
    },
    measure::{Consumer, Run, measure},
    source::{Folder, Source},
    synth,
    trace::Recorder,
};

const QUALITIES: [u8; 4] = [75, 88, 94, 97];
const SIZES: [(u32, u32); 5] = [(200, 150), (333, 500), (500, 375), (800, 600), (1400, 1000)];
/// Photographs beside the factorial images: the sizes that most images have.
const PHOTOGRAPHS: u64 = 40;
/// Images of a user's folder that are enough, spread over the whole of it.
const CHOSEN_MOST: u64 = 200;
/// Epochs of a pass whose reads wait: enough to forget that threads are started.
const WAITING_EPOCHS: u32 = 8;
/// Fewer than these say nothing.
const LEAST: usize = 16;

/// The images, on disk, and how large they are.
pub(super) struct Corpus {
    path: PathBuf,
    images: Arc<Chosen>,
    decoder: Decoder,
    /// Bytes and pixels.
    sizes: Vec<(f64, f64)>,
}

/// What was observed over one pass.
pub(super) struct Pass {
    pub(super) decode_ns: Vec<f64>,
    pub(super) read_ns: Vec<f64>,
    pub(super) run: Run,
    /// How often every image was read and decoded.
    pub(super) epochs: u32,
}

impl Corpus {
    /// The factorial images and photographs, written if they are not there.
    pub(super) fn make(folder: &Path, decoder: &Decoder) -> Result<Corpus, CalibrateError> {
        let mut specs = synth::factorial(SEED, &QUALITIES, &SIZES, 1);
        specs.extend((0..PHOTOGRAPHS).map(|index| synth::Spec::plan(SEED, index)));
        let folder = folder.join(format!("calibration-{}-{}", synth::VERSION, specs.len()));
        let wrong = |error| CalibrateError::Write { folder: folder.clone(), error };
        fs::create_dir_all(&folder).map_err(wrong)?;
        for (i, spec) in specs.iter().enumerate() {
            synth::keep(&folder.join(format!("{i:04}.jpg")), spec).map_err(wrong)?;
        }
        let files = Folder::images(&folder)?;
        let sizes = specs.iter().enumerate().map(|(i, spec)| {
            let bytes = files.bytes_bound(i as u64).unwrap_or(0);
            (bytes as f64, spec.pixels() as f64)
        });
        let sizes = sizes.collect();
        let images = Arc::new(Chosen { which: (0..files.len()).collect(), folder: files });
        Ok(Corpus { path: folder, images, decoder: decoder.clone(), sizes })
    }

    /// Images of the user's own, spread over the folder; those that cannot be decoded are passed over.
    pub(super) fn of_folder(folder: &Path, decoder: &Decoder) -> Result<Corpus, CalibrateError> {
        let files = Folder::images(folder)?;
        let wanted = files.len().min(CHOSEN_MOST);
        let (mut which, mut sizes, mut encoded) = (Vec::new(), Vec::new(), Vec::new());
        let mut pixels = vec![0; decoder.target().bytes()];
        let mut last = None;
        for i in 0..wanted {
            let sample = (u128::from(i) * u128::from(files.len()) / u128::from(wanted)) as u64;
            let whole = files.read(sample, &mut encoded, &|| true).and_then(|()| decoder.decode_into(&encoded, &mut pixels));
            match whole.and_then(|_| codec::probe(&encoded)) {
                Ok(header) => {
                    which.push(sample);
                    sizes.push((encoded.len() as f64, header.pixels() as f64));
                }
                Err(failure) => last = Some((files.name(sample), failure)),
            }
        }
        match last {
            Some((name, failure)) if which.len() < LEAST => Err(CalibrateError::TooFew { have: which.len(), name, failure }),
            _ if which.len() < LEAST => Err(CalibrateError::FewImages { have: which.len(), folder: folder.to_owned() }),
            _ => {
                let images = Arc::new(Chosen { folder: files, which });
                Ok(Corpus { path: folder.to_owned(), images, decoder: decoder.clone(), sizes })
            }
        }
    }

    /// How many images.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Removes the images: some are damaged, as a crash of the computer leaves them.
    pub(super) fn discard(&self) -> Result<(), CalibrateError> {
        fs::remove_dir_all(&self.path).map_err(|error| CalibrateError::Write { folder: self.path.clone(), error })
    }

    /// The loader once over all images.
    pub(super) fn pass(&self, threads: usize) -> Result<Pass, CalibrateError> {
        self.observed(threads, 4 * threads, Recorder::new())
    }

    /// The loader over all images some times, reading on threads that wait a little for each, as they do for a store.
    pub(super) fn waiting_pass(&self, threads: usize) -> Result<Pass, CalibrateError> {
        self.run(threads, 64, Recorder::new(), Some(Arc::new(Pause)), WAITING_EPOCHS)
    }

    /// The same with another number of lanes, and events for `recorder`.
    pub(super) fn observed(&self, threads: usize, lanes: usize, recorder: Recorder) -> Result<Pass, CalibrateError> {
        self.run(threads, lanes, recorder, None, 1)
    }

    fn run(
        &self,
        threads: usize,
        lanes: usize,
        recorder: Recorder,
        store_delay: Option<Arc<dyn StoreDelay>>,
        epochs: u32,
    ) -> Result<Pass, CalibrateError> {
        let count = self.sizes.len();
        let times = || Arc::new(Mutex::new(vec![0.0; count]));
        let (decode_ns, read_ns) = (times(), times());
        let source = Arc::new(Observed { inner: self.images.clone(), read_ns: read_ns.clone() });
        let fill = Decode { decoder: self.decoder.clone(), decode_ns: decode_ns.clone() };
        let config = real::Config { threads, reads: Reads::Pool, store_delay, ..real::Config::new(source) };
        let mut settings = Settings::new(count as u64, 32, self.decoder.target().bytes());
        settings.shuffle = Some(SEED);
        settings.lanes = lanes;
        settings.epochs = epochs;
        settings.sample_bytes = self.sizes.iter().map(|s| s.0 as u64).max().unwrap_or(1).max(1);
        let run = measure(config, settings.resolve()?, fill, Consumer::EAGER, recorder, |_| ())?;
        if let Err(error) = run.end {
            return Err(CalibrateError::Loader(error));
        }
        let take = |times: Arc<Mutex<Vec<f64>>>| times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Pass { decode_ns: take(decode_ns), read_ns: take(read_ns), run, epochs })
    }

    /// The median time of every image over the passes.
    pub(super) fn samples(&self, passes: &[&Pass], times: impl Fn(&Pass) -> &Vec<f64>) -> Vec<Sample> {
        let median_of = |i: usize| median(passes.iter().map(|pass| times(pass)[i]).collect());
        self.sizes.iter().enumerate().map(|(i, &(bytes, pixels))| Sample { bytes, pixels, time_ns: median_of(i) }).collect()
    }
}

/// What reads wait that are measured on threads that wait.
struct Pause;

impl StoreDelay for Pause {
    fn first_byte(&self, _: &Op) -> Duration {
        Duration::from_micros(500)
    }

    fn transfer(&self, _: u64) -> Duration {
        Duration::from_micros(100)
    }
}

/// Some images of a folder.
struct Chosen {
    folder: Folder,
    which: Vec<u64>,
}

impl Chosen {
    fn of(&self, sample: u64) -> u64 {
        self.which.get(sample as usize).copied().unwrap_or(u64::MAX)
    }
}

impl Source for Chosen {
    fn len(&self) -> u64 {
        self.which.len() as u64
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        self.folder.bytes_bound(self.of(sample))
    }

    fn name(&self, sample: u64) -> String {
        self.folder.name(self.of(sample))
    }

    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.folder.read(self.of(sample), into, wanted)
    }
}

/// A source whose reads are timed.
struct Observed {
    inner: Arc<Chosen>,
    read_ns: Arc<Mutex<Vec<f64>>>,
}

impl Source for Observed {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        self.inner.bytes_bound(sample)
    }

    fn name(&self, sample: u64) -> String {
        self.inner.name(sample)
    }

    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        let began = usage::thread_cpu_ns();
        let answer = self.inner.read(sample, into, wanted);
        note(&self.read_ns, sample, began);
        answer
    }
}

fn note(times: &Mutex<Vec<f64>>, sample: u64, began_ns: u64) {
    let took_ns = usage::thread_cpu_ns() - began_ns;
    times.lock().unwrap_or_else(PoisonError::into_inner)[sample as usize] = took_ns as f64;
}

/// Decoding that is timed.
struct Decode {
    decoder: Decoder,
    decode_ns: Arc<Mutex<Vec<f64>>>,
}

impl Fill<Pixels, Encoded> for Decode {
    fn work(&self, _: Item, encoded: &Encoded) -> Work {
        Work { kind: "decode", bytes: encoded.data.len() as u64, pixels: encoded.pixels }
    }

    fn fill(&self, item: Item, encoded: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        let began = usage::thread_cpu_ns();
        let answer = self.decoder.decode_into(&encoded.data, out).map(drop);
        note(&self.decode_ns, item.sample, began);
        answer
    }
}
