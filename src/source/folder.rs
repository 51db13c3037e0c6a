//! A folder of files, searched recursively: one file, one sample.

use std::{
    cell::RefCell,
    ffi::CStr,
    io::{self, IoSliceMut},
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::{
    fs::{Advice, CWD, Mode, OFlags, ResolveFlags, fadvise, fstat, open, openat2},
    io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr},
};

use super::{
    Source,
    listing::{FolderError, Listing},
};
use crate::failure::{Failure, FailureKind};

/// Files are read in pieces of this size when nobody hurries, so that a read that is given up ends soon \[B\].
const PIECE_BYTES: usize = 1 << 20;

/// The files of a folder and its subfolders, in the order of their paths, which is the same on every computer.
///
/// The folder is listed once; a file that changes its size afterwards is a failure of its read. Reading a file opens it, asks for
/// its size, reads exactly that and closes it, and allocates nothing once the buffers have grown.
///
/// [`try_read`](Source::try_read) serves what is in the page cache. It asks the kernel not to wait, for the data (`RWF_NOWAIT`) and,
/// from Linux 5.12 on, for the path (`RESOLVE_CACHED`). Where the file system cannot promise that for data, as some network file
/// systems cannot, every read is one that may wait.
#[derive(Debug)]
pub struct Folder {
    listing: Listing,
    /// Whether the kernel can open a file without waiting for its path. Assumed until it says otherwise.
    resolves_cached: AtomicBool,
}

impl Folder {
    /// The extensions of images, which [`Folder::images`] looks for.
    pub const IMAGES: [&'static str; 3] = ["jpg", "jpeg", "png"];

    /// All JPEG and PNG files under `root`.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`].
    pub fn images(root: impl AsRef<Path>) -> Result<Folder, FolderError> {
        Folder::open(root, &Folder::IMAGES)
    }

    /// All files under `root` with one of these extensions, in whatever case they are written. Hidden files and folders, whose names
    /// begin with a dot, are passed over; links are followed, but not in circles.
    ///
    /// # Errors
    ///
    /// When `root` is no folder, when a folder cannot be read, or when there is no such file: see [`FolderError`].
    pub fn open(root: impl AsRef<Path>, extensions: &[&str]) -> Result<Folder, FolderError> {
        let listing = Listing::of(root.as_ref(), extensions)?;
        Ok(Folder { listing, resolves_cached: AtomicBool::new(true) })
    }

    /// Bytes of all files together, as they were listed \[B\].
    pub fn bytes(&self) -> u64 {
        self.listing.bytes()
    }

    /// Asks the kernel to forget what it keeps of the files, so that the next reads come from the device. What was written and is not
    /// on the device yet stays, and so does what a file system keeps that lives in memory: see [`Folder::cached`].
    pub fn evict(&self) {
        for sample in 0..self.len() {
            // A file that cannot be opened is for its read to tell of.
            if let Ok(Some(file)) = self.open_file(sample, true) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }

    /// How many files can be read without waiting for a device, as far as the kernel tells. Those that cannot, it may begin to read.
    pub fn cached(&self) -> u64 {
        let mut data = Vec::new();
        (0..self.len()).filter(|&sample| self.try_read(sample, &mut data).unwrap_or(false)).count() as u64
    }

    /// Opens the sample's file, or tells that this would have to wait, which it does not if `may_wait` is false.
    fn open_file(&self, sample: u64, may_wait: bool) -> Result<Option<OwnedFd>, Failure> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = self.with_path(sample, |path| {
            let waiting = || retry_on_intr(|| open(path, flags, Mode::empty()));
            if may_wait || !self.resolves_cached.load(Relaxed) {
                return waiting();
            }
            match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
                // An old kernel, or a sandbox that forbids what it does not know.
                Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                    self.resolves_cached.store(false, Relaxed);
                    waiting()
                }
                opened => opened,
            }
        })?;
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(Errno::AGAIN) if !may_wait => Ok(None),
            Err(error) => Err(self.failure(sample, "open", error)),
        }
    }

    /// Makes room for exactly the bytes that the file has, which must be those that it had when it was listed.
    fn prepare(&self, sample: u64, file: &OwnedFd, into: &mut Vec<u8>) -> Result<(), Failure> {
        let stat = fstat(file).map_err(|error| self.failure(sample, "stat", error))?;
        let (listed, now) = (self.listing.size(sample), u64::try_from(stat.st_size).unwrap_or(0));
        if now != listed {
            let kind = if now < listed { FailureKind::Truncated } else { FailureKind::Corrupt };
            let message = format!("`{}` has {now} bytes, but had {listed} when the folder was listed", self.name(sample));
            return Err(Failure::new(kind, message));
        }
        let bytes = usize::try_from(now).map_err(|_| self.too_large(sample, now))?;
        into.truncate(bytes);
        into.try_reserve_exact(bytes - into.len()).map_err(|_| self.too_large(sample, now))?;
        into.resize(bytes, 0);
        Ok(())
    }

    fn too_large(&self, sample: u64, bytes: u64) -> Failure {
        Failure::new(FailureKind::TooLarge, format!("no memory for the {bytes} bytes of `{}`", self.name(sample)))
    }

    fn ended_early(&self, sample: u64, at: usize) -> Failure {
        Failure::new(FailureKind::Truncated, format!("`{}` ended after {at} bytes while it was read", self.name(sample)))
    }

    fn failure(&self, sample: u64, verb: &str, error: Errno) -> Failure {
        let kind = match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => FailureKind::NotFound,
            // Another try may find the disk, the network or a file descriptor.
            Errno::IO | Errno::STALE | Errno::TIMEDOUT | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                FailureKind::Transient
            }
            _ => FailureKind::Store,
        };
        Failure::new(kind, format!("cannot {verb} `{}`: {}", self.name(sample), io::Error::from(error)))
    }

    /// Calls `use_path` with the sample's path, without allocating.
    fn with_path<R>(&self, sample: u64, use_path: impl FnOnce(&CStr) -> R) -> Result<R, Failure> {
        thread_local!(static PATH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
        if sample >= self.listing.len() {
            let message = format!("sample {sample} is not among the {} of the folder", self.listing.len());
            return Err(Failure::new(FailureKind::NotFound, message));
        }
        PATH.with_borrow_mut(|path| {
            path.clear();
            self.listing.write_path(sample, path);
            path.push(0);
            Ok(use_path(CStr::from_bytes_with_nul(path).expect("no path of a directory entry contains a zero")))
        })
    }
}

impl Source for Folder {
    fn len(&self) -> u64 {
        self.listing.len()
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        (sample < self.listing.len()).then(|| self.listing.size(sample))
    }

    fn name(&self, sample: u64) -> String {
        if sample >= self.listing.len() {
            return format!("sample {sample}");
        }
        let mut path = Vec::new();
        self.listing.write_path(sample, &mut path);
        String::from_utf8_lossy(&path).into_owned()
    }

    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        let file = self.open_file(sample, true)?.expect("an open that may wait does");
        self.prepare(sample, &file, into)?;
        let mut at = 0;
        while at < into.len() {
            if at > 0 && !wanted() {
                return Err(Failure::new(FailureKind::Closed, "nobody waits for the rest"));
            }
            let end = into.len().min(at + PIECE_BYTES);
            match retry_on_intr(|| pread(&file, &mut into[at..end], at as u64)) {
                Ok(0) => return Err(self.ended_early(sample, at)),
                Ok(n) => at += n,
                Err(error) => return Err(self.failure(sample, "read", error)),
            }
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn try_read(&self, sample: u64, into: &mut Vec<u8>) -> Result<bool, Failure> {
        let Some(file) = self.open_file(sample, false)? else { return Ok(false) };
        self.prepare(sample, &file, into)?;
        let mut at = 0;
        while at < into.len() {
            match preadv2(&file, &mut [IoSliceMut::new(&mut into[at..])], at as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(self.ended_early(sample, at)),
                Ok(n) => at += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(false),
                Err(error) => return Err(self.failure(sample, "read", error)),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
