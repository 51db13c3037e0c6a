//! Reads of files that no cache holds.
//!
//! Small files, one after the other, tell the latency up to the first byte; large ones what one read gets, and many at once what all
//! reads share. Before every series the kernel is asked to forget the files, and whether it did is looked at: a file system that
//! lives in memory cannot.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

use super::{CalibrateError, fit::Sample, fit::quantiles_of, median};
use crate::{
    draw::{Purpose, draw},
    machine::real::usage,
    source::{Folder, Source},
};

/// Bytes of the files that tell the latency: a page.
const SMALL: usize = 4 << 10;
/// Bytes of the files that tell the rate.
const LARGE: usize = 512 << 10;
const SMALL_FILES: usize = 96;
const LARGE_FILES: usize = 32;
/// Reads at once; the most is as many as the real machine has threads that wait.
const DEPTHS: [usize; 4] = [1, 4, 16, 32];

/// What cold reads take.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Disk {
    /// What a small read waits, at equally spaced quantiles, from the least to the most \[ns\].
    pub(super) first_byte_ns: Vec<f64>,
    /// What one large read gets \[B/s\].
    pub(super) per_connection: f64,
    /// The most that reads at once get together \[B/s\].
    pub(super) bandwidth: f64,
    /// Reads at once with which it was reached.
    pub(super) depth: usize,
    /// CPU time of reads by their bytes.
    pub(super) cpu: Vec<Sample>,
}

/// One series of reads.
struct Series {
    /// What each read waited: its time on the wall less that of the processor.
    wait_ns: Vec<f64>,
    cpu_ns: Vec<f64>,
    whole_s: f64,
}

/// Measures cold reads in `folder`; `None` where files cannot be made cold.
pub(super) fn cold_reads(folder: &Path) -> Result<Option<Disk>, CalibrateError> {
    let wrong = |error| CalibrateError::Write { folder: folder.to_owned(), error };
    let small = files(&folder.join("small"), SMALL_FILES, SMALL).map_err(wrong)?;
    let large = files(&folder.join("large"), LARGE_FILES, LARGE).map_err(wrong)?;
    let Some(latency) = series(&small, 1).map_err(wrong)? else { return Ok(None) };
    let mut at_depth = Vec::new();
    for depth in DEPTHS {
        let Some(reads) = series(&large, depth).map_err(wrong)? else { return Ok(None) };
        at_depth.push((depth, reads));
    }
    let rate = |reads: &Series| (LARGE * LARGE_FILES) as f64 / reads.whole_s;
    let (depth, best) =
        at_depth.iter().map(|(depth, reads)| (*depth, rate(reads))).max_by(|a, b| a.1.total_cmp(&b.1)).expect("four");
    let alone = &at_depth[0].1;
    let flowing_ns = (median(alone.wait_ns.clone()) - median(latency.wait_ns.clone())).max(1.0);
    let cpu = |reads: &Series, bytes: usize| Sample {
        bytes: bytes as f64,
        pixels: 0.0,
        time_ns: median(reads.cpu_ns.clone()).max(1.0),
    };
    Ok(Some(Disk {
        first_byte_ns: quantiles_of(latency.wait_ns.clone(), 11),
        per_connection: (LARGE - SMALL) as f64 / flowing_ns * 1e9,
        bandwidth: best,
        depth,
        cpu: vec![cpu(&latency, SMALL), cpu(alone, LARGE)],
    }))
}

/// Files of bytes that do not compress, written if they are not there and forced to the device.
fn files(folder: &Path, count: usize, bytes: usize) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let path = |i: usize| folder.join(format!("{i:03}.bin"));
    for i in 0..count {
        if fs::metadata(path(i)).is_ok_and(|m| m.len() == bytes as u64) {
            continue;
        }
        let unfinished = path(i).with_extension(format!("{}.unfinished", std::process::id()));
        let mut file = File::create(&unfinished)?;
        let noise = |block: usize| {
            let block = draw(i as u64, Purpose::SYNTH, block as u64, 0);
            (0..8).flat_map(move |word| block.word(word).to_le_bytes())
        };
        let noise: Vec<u8> = (0..bytes / 64).flat_map(noise).collect();
        file.write_all(&noise)?;
        file.sync_all()?;
        fs::rename(unfinished, path(i))?;
    }
    Ok((0..count).map(path).collect())
}

/// Reads every file once, `depth` at a time, after the kernel forgot them; `None` when it did not.
#[expect(clippy::disallowed_methods, reason = "calibration is of the real machine")]
fn series(paths: &[PathBuf], depth: usize) -> io::Result<Option<Series>> {
    let folder = paths[0].parent().expect("files lie in a folder");
    let source = Folder::open(folder, &["bin"]).map_err(io::Error::other)?;
    source.evict();
    if source.cached() * 4 > source.len() {
        return Ok(None);
    }
    // Asking has begun to bring them back, and what is on its way cannot be forgotten before it is there.
    let mut data = Vec::with_capacity(LARGE);
    for sample in 0..source.len() {
        source.read(sample, &mut data, &|| true).map_err(|failure| io::Error::other(failure.to_string()))?;
    }
    source.evict();
    let next = AtomicUsize::new(0);
    let reader = || -> io::Result<Vec<(f64, f64)>> {
        let (mut times, mut data) = (Vec::new(), Vec::with_capacity(LARGE));
        while let Some(path) = paths.get(next.fetch_add(1, Relaxed)) {
            let (began, cpu) = (Instant::now(), usage::thread_cpu_ns());
            data.clear();
            File::open(path)?.read_to_end(&mut data)?;
            let (wall_ns, cpu_ns) = (began.elapsed().as_nanos() as f64, (usage::thread_cpu_ns() - cpu) as f64);
            times.push(((wall_ns - cpu_ns).max(0.0), cpu_ns));
        }
        Ok(times)
    };
    let began = Instant::now();
    let all: io::Result<Vec<Vec<(f64, f64)>>> = thread::scope(|scope| {
        let readers: Vec<_> = (0..depth).map(|_| scope.spawn(reader)).collect();
        readers.into_iter().map(|reader| reader.join().expect("reading does not panic")).collect()
    });
    let whole_s = began.elapsed().as_secs_f64();
    let (wait_ns, cpu_ns) = all?.into_iter().flatten().unzip();
    Ok(Some(Series { wait_ns, cpu_ns, whole_s }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_reads_are_measured_or_said_to_be_impossible() {
        let folder = tempfile::tempdir().unwrap();
        if let Some(disk) = cold_reads(folder.path()).unwrap() {
            assert!(disk.first_byte_ns.windows(2).all(|w| w[0] <= w[1]), "{disk:?}");
            assert!(disk.bandwidth > 0.0 && disk.per_connection > 0.0, "{disk:?}");
            assert!(disk.cpu.iter().all(|s| s.time_ns > 0.0), "{disk:?}");
        }
    }
}
