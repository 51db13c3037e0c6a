//! The loader against a bare loop: both open, read, decode and resize the same files with the same codec on the same threads; the bare
//! loop does nothing else, so it is the limit.
//!
//! ```sh
//! cargo bench --bench throughput -- --data FOLDER --rounds 10          # alternating rounds, ratio and spread
//! cargo bench --bench throughput -- --data FOLDER [--bare] [--json]    # one run, the line of benches/peers/README.md
//! ```
//!
//! Without `--data` it makes 400 images in a temporary folder. The window of a run is steady: it opens at the end of the first pass over
//! the files and closes at the end of pass `epochs + 1`, in a stream of `epochs + 2` passes that is then given up.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the wall clock")]

use std::{
    fs::File,
    hint::black_box,
    io::Read,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use towtank::{
    codec::{Choice, Decoder, Target},
    loader::{DecodeImage, Settings},
    machine::real::{self, usage},
    measure::{Consumer, measure},
    source::{Folder, Source},
    synth,
    trace::Recorder,
};

struct Options {
    data: Option<PathBuf>,
    batch: usize,
    workers: usize,
    epochs: usize,
    rounds: usize,
    bare: bool,
    codec: Choice,
    dump: Option<PathBuf>,
}

fn options() -> Options {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut o =
        Options { data: None, batch: 64, workers: threads, epochs: 4, rounds: 0, bare: false, codec: Choice::Auto, dump: None };
    let mut words = std::env::args().skip(1).flat_map(|word| match word.split_once('=') {
        Some((flag, value)) => vec![flag.to_owned(), value.to_owned()],
        None => vec![word],
    });
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("`{word}` needs a value"));
        match word.as_str() {
            "--data" => o.data = Some(value().into()),
            "--batch" => o.batch = value().parse().expect("--batch takes a number"),
            "--workers" => o.workers = value().parse().expect("--workers takes a number"),
            "--epochs" => o.epochs = value().parse().expect("--epochs takes a number"),
            "--rounds" => o.rounds = value().parse().expect("--rounds takes a number"),
            "--codec" => o.codec = value().parse().expect("--codec takes `auto`, `rust` or `turbo`"),
            "--dump" => o.dump = Some(value().into()),
            "--bare" => o.bare = true,
            // Cargo passes it.
            "--bench" | "--json" => {}
            other => panic!("`{other}` is no flag of this benchmark; see its first lines"),
        }
    }
    o
}

/// What a run came to in its window.
struct Window {
    images: usize,
    wall_s: f64,
    cpu_s: f64,
    first_batch_s: f64,
    mean: f64,
}

impl Window {
    fn images_per_s(&self) -> f64 {
        self.images as f64 / self.wall_s
    }
}

/// Opens and closes the window by counting images.
struct Marks {
    began: Instant,
    open_at: usize,
    close_at: usize,
    open: Option<(Instant, u64)>,
    close: Option<(Instant, u64)>,
}

impl Marks {
    fn new(files: usize, epochs: usize) -> Marks {
        Marks { began: Instant::now(), open_at: files, close_at: files * (epochs + 1), open: None, close: None }
    }

    /// Whether the window has closed, with `done` images done.
    fn pass(&mut self, done: usize) -> bool {
        let now = || (Instant::now(), usage::process_cpu_ns());
        if self.open.is_none() && done >= self.open_at {
            self.open_at = done;
            self.open = Some(now());
        }
        if self.close.is_none() && done >= self.close_at {
            self.close_at = done;
            self.close = Some(now());
        }
        self.close.is_some()
    }

    fn window(&self, first_batch_s: f64, mean: f64) -> Window {
        let (open, close) = (self.open.expect("the window opened"), self.close.expect("the window closed"));
        Window {
            images: self.close_at - self.open_at,
            wall_s: (close.0 - open.0).as_secs_f64(),
            cpu_s: (close.1 - open.1) as f64 / 1e9,
            first_batch_s,
            mean,
        }
    }
}

fn bare(o: &Options, folder: &Folder, decoder: &Decoder) -> Window {
    let files = folder.len() as usize;
    let paths: Vec<String> = (0..folder.len()).map(|i| folder.name(i)).collect();
    let (next, done, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let marks = Mutex::new(Marks::new(files, o.epochs));
    thread::scope(|scope| {
        for _ in 0..o.workers {
            scope.spawn(|| {
                let (mut encoded, mut pixels) = (Vec::new(), vec![0; decoder.target().bytes()]);
                while !over.load(Relaxed) {
                    let i = next.fetch_add(1, Relaxed);
                    encoded.clear();
                    let mut file = File::open(&paths[i % files]).expect("the file was listed");
                    file.read_to_end(&mut encoded).expect("the file is readable");
                    decoder.decode_into(&encoded, &mut pixels).expect("the image is sound");
                    black_box(&pixels);
                    let done = done.fetch_add(1, Relaxed) + 1;
                    if done % files == 0 && marks.lock().expect("no thread panicked").pass(done) {
                        over.store(true, Relaxed);
                    }
                }
            });
        }
    });
    let marks = marks.into_inner().expect("no thread panicked");
    marks.window(0.0, 0.0)
}

fn loader(o: &Options, folder: &Arc<Folder>, decoder: &Decoder) -> Window {
    let files = folder.len() as usize;
    let config = real::Config { threads: o.workers, ..real::Config::new(folder.clone()) };
    let mut settings = Settings::new(folder.len(), o.batch, decoder.target().bytes());
    settings.epochs = u32::try_from(o.epochs + 2).expect("a small number");
    settings.lanes = 4 * o.workers;
    let batches = (settings.epochs as usize * files.div_ceil(o.batch)) as u64;
    let consumer = Consumer { leave_after: Some(batches - files.div_ceil(o.batch) as u64), ..Consumer::EAGER };
    let mut marks = Marks::new(files, o.epochs);
    let (mut done, mut first, mut mean) = (0, None, 0.0);
    let resolved = settings.resolve().expect("the settings fit together");
    let run = measure(config, resolved, DecodeImage::new(decoder.clone()), consumer, Recorder::new(), |batch| {
        done += batch.len();
        marks.pass(done);
        if first.is_none() {
            first = Some(marks.began.elapsed().as_secs_f64());
            let pixels = batch.pixels();
            mean = pixels.iter().map(|p| f64::from(*p)).sum::<f64>() / pixels.len() as f64;
            if let Some(path) = &o.dump {
                dump(path, batch.len(), decoder.target(), pixels).expect("the dump can be written");
            }
        }
    });
    let run = run.expect("the machine runs");
    assert_eq!(run.end, Ok(()), "the loader ends well");
    marks.window(first.expect("there was a batch"), mean)
}

/// Writes `[batch, height, width, 3]` u8 as an `.npy` file.
fn dump(path: &PathBuf, batch: usize, target: Target, pixels: &[u8]) -> std::io::Result<()> {
    let Target { width, height, .. } = target;
    let mut header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({batch}, {height}, {width}, 3), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(pixels);
    std::fs::write(path, bytes)
}

fn quartiles(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
    (at(0.25), at(0.5), at(0.75))
}

fn main() {
    let o = options();
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let data = o.data.clone().unwrap_or_else(|| {
        eprintln!("making 400 images; --data FOLDER takes others");
        synth::write_folder(temporary.path(), 400, 7, |_| ()).expect("the images can be written");
        temporary.path().to_owned()
    });
    let folder = Arc::new(Folder::images(&data).unwrap_or_else(|error| panic!("{error}")));
    let decoder = Decoder::new(o.codec, Target::square(224)).unwrap_or_else(|error| panic!("{error}"));
    if o.rounds == 0 {
        let window = if o.bare { bare(&o, &folder, &decoder) } else { loader(&o, &folder, &decoder) };
        let line = serde_json::json!({
            "loader": if o.bare { "bare loop" } else { "towtank" },
            "version": format!("{} {}", env!("CARGO_PKG_VERSION"), decoder.description()),
            "batch": o.batch,
            "workers": o.workers,
            "images": window.images,
            "img_s": window.images_per_s(),
            "cpu_s_per_1k": window.cpu_s / window.images as f64 * 1000.0,
            "first_batch_s": window.first_batch_s,
            "process_to_first_batch_s": window.first_batch_s,
            "mean": window.mean,
        });
        println!("{line}");
        return;
    }
    println!("{} files, {} threads, {}, {} alternating rounds", folder.len(), o.workers, decoder.description(), o.rounds);
    let (mut ratios, mut rates, mut bare_rates, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..o.rounds {
        let (b, l) = if round % 2 == 0 {
            let b = bare(&o, &folder, &decoder);
            (b, loader(&o, &folder, &decoder))
        } else {
            let l = loader(&o, &folder, &decoder);
            (bare(&o, &folder, &decoder), l)
        };
        println!("round {round}: bare {:.0}, loader {:.0} images/s", b.images_per_s(), l.images_per_s());
        ratios.push(l.images_per_s() / b.images_per_s());
        rates.push(l.images_per_s());
        bare_rates.push(b.images_per_s());
        cpu.push(l.cpu_s / l.images as f64 / (b.cpu_s / b.images as f64));
    }
    let ((low, middle, high), (_, rate, _), (_, bare_rate, _)) = (quartiles(ratios), quartiles(rates), quartiles(bare_rates));
    println!(
        "loader {rate:.0}, bare loop {bare_rate:.0} images/s; loader over bare loop {middle:.3} (quartiles {low:.3} to {high:.3})"
    );
    println!("CPU time per image, loader over bare loop: {:.3}", quartiles(cpu).1);
}
