//! A folder of synthetic images, made once.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Spec, VERSION, jpeg};

/// The file that says a folder is complete. It is written last.
const MANIFEST: &str = "synth.json";

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the generator.
    pub version: u32,
    /// Seed of the data set.
    pub seed: u64,
    /// Images in it.
    pub count: u64,
    /// Their bytes \[B\].
    pub bytes: u64,
    /// Their pixels \[px\].
    pub pixels: u64,
    /// Images that this call made; the others were there already.
    #[serde(skip)]
    pub made: u64,
}

/// Fills `dir`, which is created where needed, with the images 0 to `count` of data set `seed`, on all cores.
///
/// Each image is written under another name first and then renamed, so a file that bears an image's name is whole. One that was cut since, that
/// does not begin and end as a JPEG does, is made anew. A list says whose
/// images the folder holds, from the beginning, and how many of them are surely there, at the end; one that cannot be read counts as
/// none. After a kill the next call goes on where the last one stopped. A folder that is complete is left alone, and so
/// need not be writable. `progress` is told, now and then and at the end, how many images are there.
///
/// # Errors
///
/// The first error of the file system; `InvalidData` when the folder's list speaks of another data set.
pub fn write_folder(dir: &Path, count: u64, seed: u64, progress: impl FnMut(u64) + Send) -> io::Result<Summary> {
    fs::create_dir_all(dir)?;
    let manifest = dir.join(MANIFEST);
    let known = read_manifest(&manifest)?;
    if let Some(known) = &known
        && ((known.version, known.seed) != (VERSION, seed) || known.count > count)
    {
        let message = format!(
            "`{}` is for images of seed {} (version {}) and holds {}, not the {count} of seed {seed} (version {VERSION})",
            dir.display(),
            known.seed,
            known.version,
            known.count
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    if known.is_none() {
        write_manifest(&manifest, &Summary { version: VERSION, seed, count: 0, bytes: 0, pixels: 0, made: 0 })?;
    }
    let progress = Mutex::new(progress);
    let (done, made) = (AtomicU64::new(0), AtomicU64::new(0));
    // One error stops the rest.
    let stop = AtomicBool::new(false);
    let (bytes, pixels) = (0..count)
        .into_par_iter()
        .map(|index| {
            if stop.load(Relaxed) {
                return Ok((0, 0));
            }
            let spec = Spec::plan(seed, index);
            let (bytes, fresh) = write_image(dir, &spec).inspect_err(|_| stop.store(true, Relaxed))?;
            made.fetch_add(u64::from(fresh), Relaxed);
            let done = done.fetch_add(1, Relaxed) + 1;
            // Whoever finds the caller busy leaves it to the next.
            if let Ok(mut progress) = progress.try_lock() {
                progress(done);
            }
            Ok((bytes, spec.pixels()))
        })
        .try_reduce(|| (0, 0), |a, b| Ok::<_, io::Error>((a.0 + b.0, a.1 + b.1)))?;
    let mut progress = progress.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    progress(count);
    let summary = Summary { version: VERSION, seed, count, bytes, pixels, made: made.into_inner() };
    if known != Some(Summary { made: 0, ..summary.clone() }) {
        write_manifest(&manifest, &summary)?;
    }
    Ok(summary)
}

fn write_manifest(path: &Path, summary: &Summary) -> io::Result<()> {
    let text = serde_json::to_string_pretty(summary).map_err(io::Error::other)?;
    write_whole(path, (text + "\n").as_bytes())
}

fn read_manifest(path: &Path) -> io::Result<Option<Summary>> {
    match fs::read(path) {
        // A crash of the whole computer can leave a list without its content; what is there is then found anew.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the image unless it is there. Returns its bytes, and whether it was made.
fn write_image(dir: &Path, spec: &Spec) -> io::Result<(u64, bool)> {
    keep(&dir.join(format!("v{VERSION}-{}-{:06}.jpg", spec.seed, spec.index)), spec)
}

/// Makes the image in this file unless it is there. Returns its bytes, and whether it was made.
pub(crate) fn keep(path: &Path, spec: &Spec) -> io::Result<(u64, bool)> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let why = format!("`{}` is a folder, and an image belongs there", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // A crash of the whole computer can leave a name without its content, or with a part of it.
        Ok(found) if is_whole(path, found.len())? => return Ok((found.len(), false)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let bytes = jpeg(spec);
    write_whole(path, &bytes)?;
    Ok((bytes.len() as u64, true))
}

/// Whether a file begins and ends as a JPEG does: with the marker of its start, and that of its end.
fn is_whole(path: &Path, len: u64) -> io::Result<bool> {
    let (mut start, mut end) = ([0; 2], [0; 2]);
    if len < 4 {
        return Ok(false);
    }
    let mut file = File::open(path)?;
    file.read_exact(&mut start)?;
    file.seek(SeekFrom::End(-2))?;
    file.read_exact(&mut end)?;
    Ok(start == [0xff, 0xd8] && end == [0xff, 0xd9])
}

/// Writes a file so that its name is either absent or bears the whole content.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().expect("a file's path has a name").to_string_lossy();
    // Two processes may fill one folder at the same time, with the same images.
    let part = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    fs::write(&part, content)?;
    fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(dir: &Path) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "jpg"))
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_folder_is_made_once_and_goes_on_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let whole = write_folder(dir.path(), 6, 2, |done| told.push(done)).unwrap();
        assert_eq!((whole.count, whole.made), (6, 6));
        assert_eq!(told.last(), Some(&6));
        let before = images(dir.path());
        assert_eq!(before.len(), 6);
        assert_eq!(whole.bytes, before.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());

        let again = write_folder(dir.path(), 6, 2, |_| {}).unwrap();
        assert_eq!(again, Summary { made: 0, ..whole.clone() });

        // As a kill between two images leaves it: some names missing, one half-written file, no list.
        fs::remove_file(dir.path().join(&before[1].0)).unwrap();
        fs::write(dir.path().join(&before[4].0), b"").unwrap();
        fs::write(dir.path().join(".half.part"), &before[0].1[..100]).unwrap();
        fs::remove_file(dir.path().join(MANIFEST)).unwrap();
        let resumed = write_folder(dir.path(), 6, 2, |_| {}).unwrap();
        assert_eq!(resumed, Summary { made: 2, ..whole });
        assert_eq!(images(dir.path()), before);
    }

    #[test]
    fn an_image_that_was_cut_is_made_anew_and_a_folder_in_its_place_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write_folder(dir.path(), 2, 1, |_| {}).unwrap();
        let before = images(dir.path());
        let path = dir.path().join(&before[1].0);
        for cut in [1, 3, before[1].1.len() / 2, before[1].1.len() - 1] {
            fs::write(&path, &before[1].1[..cut]).unwrap();
            assert_eq!(write_folder(dir.path(), 2, 1, |_| {}).unwrap().made, 1, "{cut} bytes");
            assert_eq!(images(dir.path()), before);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = write_folder(dir.path(), 2, 1, |_| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("is a folder, and an image belongs there"), "{error}");
    }

    #[test]
    fn a_folder_of_another_data_set_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write_folder(dir.path(), 2, 1, |_| {}).unwrap();
        let error = write_folder(dir.path(), 2, 5, |_| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("seed 1"), "{error}");
        assert_eq!(write_folder(dir.path(), 3, 1, |_| {}).unwrap().made, 1, "a folder may grow");
    }

    #[test]
    fn a_folder_that_was_begun_for_another_data_set_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write_folder(dir.path(), 3, 1, |_| {}).unwrap();
        // As a kill leaves it: begun, not finished.
        let begun = Summary { version: VERSION, seed: 1, count: 0, bytes: 0, pixels: 0, made: 0 };
        write_manifest(&dir.path().join(MANIFEST), &begun).unwrap();
        assert!(write_folder(dir.path(), 2, 5, |_| {}).is_err());
        assert_eq!(write_folder(dir.path(), 3, 1, |_| {}).unwrap().made, 0);
    }

    #[test]
    fn a_list_without_its_content_is_written_anew_and_a_whole_one_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let whole = write_folder(dir.path(), 2, 1, |_| {}).unwrap();
        let list = dir.path().join(MANIFEST);
        fs::write(&list, b"").unwrap();
        assert_eq!(write_folder(dir.path(), 2, 1, |_| {}).unwrap(), Summary { made: 0, ..whole });
        let written = fs::metadata(&list).unwrap().modified().unwrap();
        write_folder(dir.path(), 2, 1, |_| {}).unwrap();
        assert_eq!(fs::metadata(&list).unwrap().modified().unwrap(), written);
    }
}
