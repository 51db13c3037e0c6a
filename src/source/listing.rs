//! The files of a folder, compactly: a dataset of a million has a million of these.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use walkdir::{DirEntry, WalkDir};

/// Why a folder is no dataset.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The root is not there or is no folder.
    #[error("`{}` is not a folder{}", root.display(), because(cause.as_ref()))]
    NotAFolder {
        /// The root as it was given.
        root: PathBuf,
        /// What the system said, if it was asked.
        #[source]
        cause: Option<io::Error>,
    },
    /// A folder, or an entry of one, cannot be read.
    #[error("cannot read `{}`{}", path.display(), because(Some(cause)))]
    Unreadable {
        /// The folder or entry.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// There is no file with one of the extensions.
    #[error("no {} file under `{}`", extensions.join(" or "), root.display())]
    Empty {
        /// The root as it was given.
        root: PathBuf,
        /// The extensions looked for, with their dots.
        extensions: Vec<String>,
        /// Files with other names that were seen.
        others: u64,
    },
}

fn because(cause: Option<&io::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

impl FolderError {
    /// What to do about it, in a sentence.
    pub fn hint(&self) -> String {
        match self {
            FolderError::NotAFolder { .. } => "give a folder that holds the files, at any depth".to_owned(),
            FolderError::Unreadable { .. } => {
                "make it readable for this user, or leave it out of the dataset's folder".to_owned()
            }
            FolderError::Empty { others: 0, .. } => "the folder and its subfolders hold no file at all".to_owned(),
            FolderError::Empty { others, .. } => {
                format!("{others} files with other names are there; hidden ones are passed over")
            }
        }
    }
}

/// Paths and sizes of files, sorted by path, component by component.
///
/// Names lie in one piece of memory, and a folder's path is kept once for all its files: a file costs its name and 20 bytes.
#[derive(Debug, Default)]
pub(super) struct Listing {
    folders: Vec<Box<[u8]>>,
    names: Vec<u8>,
    name_ends: Vec<u64>,
    sizes: Vec<u64>,
    folder_of: Vec<u32>,
    bytes: u64,
}

impl Listing {
    /// Lists the files under `root`.
    pub(super) fn of(root: &Path, extensions: &[&str]) -> Result<Listing, FolderError> {
        match root.metadata() {
            Ok(found) if found.is_dir() => {}
            found => return Err(FolderError::NotAFolder { root: root.to_owned(), cause: found.err() }),
        }
        let mut listing = Listing::default();
        let mut others = 0;
        // A folder that `walkdir` sorts by name comes out in the order of paths, since it yields a subfolder's files in its place.
        let walk = WalkDir::new(root).follow_links(true).sort_by_file_name();
        for entry in walk.into_iter().filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry.file_name())) {
            match entry {
                Ok(entry) if entry.file_type().is_file() && has_extension(entry.file_name(), extensions) => {
                    let found = entry.metadata().map_err(|error| unreadable(entry.path(), error))?;
                    listing.add(entry.path(), found.len());
                }
                Ok(entry) => others += u64::from(is_other_file(&entry)),
                Err(error) if error.loop_ancestor().is_some() => {}
                Err(error) => listing.add_dangling(error, extensions)?,
            }
        }
        if listing.sizes.is_empty() {
            let extensions = extensions.iter().map(|extension| format!(".{extension}")).collect();
            return Err(FolderError::Empty { root: root.to_owned(), extensions, others });
        }
        listing.shrink();
        Ok(listing)
    }

    /// Keys of a store and their sizes, whose segments are taken for folders.
    #[cfg(feature = "remote")]
    pub(super) fn of_keys(mut keys: Vec<(String, u64)>) -> Listing {
        keys.sort_unstable_by(|(a, _), (b, _)| a.split('/').cmp(b.split('/')));
        let mut listing = Listing::default();
        for (key, bytes) in keys {
            listing.add(Path::new(&key), bytes);
        }
        listing.shrink();
        listing
    }

    fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.sizes.shrink_to_fit();
        self.folder_of.shrink_to_fit();
    }

    pub(super) fn len(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Bytes of all files together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of a file when it was listed \[B\].
    pub(super) fn size(&self, sample: u64) -> u64 {
        self.sizes[index(sample)]
    }

    /// Appends a file's path.
    pub(super) fn write_path(&self, sample: u64, path: &mut Vec<u8>) {
        let at = index(sample);
        let start = at.checked_sub(1).map_or(0, |before| self.name_ends[before]);
        path.extend_from_slice(&self.folders[self.folder_of[at] as usize]);
        path.push(b'/');
        path.extend_from_slice(&self.names[index(start)..index(self.name_ends[at])]);
    }

    fn add(&mut self, path: &Path, bytes: u64) {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let folder = folder.as_os_str().as_bytes();
        // A file comes behind others of its folder, or behind those of a subfolder: then its folder is not the last one.
        let known = self.folders.iter().rev().take(64).position(|known| **known == *folder);
        let folder_index = match known {
            Some(from_end) => self.folders.len() - 1 - from_end,
            None => {
                self.folders.push(folder.into());
                self.folders.len() - 1
            }
        };
        self.folder_of.push(u32::try_from(folder_index).expect("four thousand million folders do not fit into memory"));
        self.names.extend_from_slice(name.as_bytes());
        self.name_ends.push(self.names.len() as u64);
        self.sizes.push(bytes);
        self.bytes += bytes;
    }

    /// A link that leads nowhere is a sample if its name says so, whose read will fail; anything else that cannot be looked at is an
    /// error.
    fn add_dangling(&mut self, error: walkdir::Error, extensions: &[&str]) -> Result<(), FolderError> {
        let path = error.path().unwrap_or(Path::new("")).to_owned();
        if path.is_symlink() && !path.exists() {
            if path.file_name().is_some_and(|name| !is_hidden(name) && has_extension(name, extensions)) {
                self.add(&path, 0);
            }
            return Ok(());
        }
        Err(unreadable(&path, error))
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("an index into memory fits")
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().first() == Some(&b'.')
}

fn is_other_file(entry: &DirEntry) -> bool {
    !entry.file_type().is_dir()
}

fn has_extension(name: &OsStr, extensions: &[&str]) -> bool {
    let extension = Path::new(name).extension().unwrap_or_default();
    extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn unreadable(path: &Path, error: walkdir::Error) -> FolderError {
    let path = error.path().unwrap_or(path).to_owned();
    let cause = error.into_io_error().unwrap_or_else(|| io::Error::other("links that lead in a circle"));
    FolderError::Unreadable { path, cause }
}
