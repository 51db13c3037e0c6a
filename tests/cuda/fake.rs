//! Builds and loads the driver without a GPU, and gives it to one test at a time.

use std::{
    env,
    ffi::{CString, c_char},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use libloading::{Library, Symbol};

/// What the driver has seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) races: u64,
    pub(crate) forbidden: u64,
    pub(crate) leaks: u64,
    pub(crate) copies: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) kernels: u64,
}

pub(crate) const TELLS_AT_ONCE: u32 = 1;
pub(crate) const IGNORES_WAITS: u32 = 2;
pub(crate) const TELLS_NOTHING: u32 = 4;

/// The driver, for one test alone.
pub(crate) struct Fake {
    library: &'static Library,
    _alone: MutexGuard<'static, ()>,
}

/// A driver that has forgotten everything: two GPUs, 2 GB/s and 20 µs a copy.
pub(crate) fn fake() -> Fake {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = Fake { library: library(), _alone: alone };
    fake.settle();
    fake.reset(2, 2_000_000_000, Duration::from_micros(20));
    fake
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // Loaded under the name by which the driver is looked for, it is what the search finds.
        // SAFETY: it is the library in this folder's neighbour, which has no initialisers.
        unsafe { Library::new(built()) }.expect("the driver that was just built")
    })
}

/// Where the driver is, as `libcuda.so`. It is built anew when its sources have changed, by the first test that needs it.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-cuda");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-cuda");
    let library = folder.join("libcuda.so");
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let newest = fs::read_dir(&sources).expect("its sources").map(|file| changed(&file.expect("a file").path())).max().flatten();
    if changed(&library) > newest {
        return library;
    }
    fs::create_dir_all(&folder).expect("a folder for it");
    let unfinished = folder.join(format!("{}.unfinished", std::process::id()));
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-O", "--crate-type", "cdylib", "--crate-name", "cuda", "-D", "warnings"])
        .args(["-C", "link-arg=-Wl,-soname,libcuda.so", "-o"])
        .arg(&unfinished)
        .arg(sources.join("lib.rs"))
        .output()
        .expect("rustc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::rename(&unfinished, &library).expect("the built driver");
    library
}

impl Fake {
    fn symbol<T>(&self, name: &str) -> Symbol<'static, T> {
        // SAFETY: the types are those of `fake-cuda/control.rs`.
        unsafe { self.library.get(name.as_bytes()) }.expect("a function of the driver's control")
    }

    /// Forgets everything.
    pub(crate) fn reset(&self, devices: u32, bytes_per_s: u64, latency: Duration) {
        let reset: Symbol<extern "C" fn(u32, u64, u64)> = self.symbol("fake_cuda_reset");
        reset(devices, bytes_per_s, latency.as_nanos() as u64);
    }

    pub(crate) fn misbehave(&self, how: u32) {
        let misbehave: Symbol<extern "C" fn(u32)> = self.symbol("fake_cuda_misbehave");
        misbehave(how);
    }

    /// How much memory a GPU has.
    pub(crate) fn capacity(&self, bytes: u64) {
        let capacity: Symbol<extern "C" fn(u64)> = self.symbol("fake_cuda_capacity");
        capacity(bytes);
    }

    /// Makes call number `nth` of this name fail.
    pub(crate) fn fail(&self, name: &str, nth: u64) {
        let fail: Symbol<unsafe extern "C" fn(*const c_char, u64, u32)> = self.symbol("fake_cuda_fail");
        let name = CString::new(name).expect("a name");
        // SAFETY: the name is a string.
        unsafe { fail(name.as_ptr(), nth, 999) };
    }

    /// Makes copy number `nth` break the context.
    pub(crate) fn break_at(&self, nth: u64) {
        let break_at: Symbol<extern "C" fn(u64)> = self.symbol("fake_cuda_break");
        break_at(nth);
    }

    pub(crate) fn report(&self) -> Report {
        let report: Symbol<extern "C" fn() -> Report> = self.symbol("fake_cuda_report");
        report()
    }

    /// The functions that were called, and how often.
    pub(crate) fn calls(&self) -> Vec<(String, u64)> {
        type Calls = unsafe extern "C" fn(usize, *mut c_char, usize, *mut u64) -> bool;
        let of: Symbol<Calls> = self.symbol("fake_cuda_calls");
        let mut all = Vec::new();
        loop {
            let (mut name, mut calls) = ([0_u8; 64], 0);
            // SAFETY: there is room for so many characters.
            if !unsafe { of(all.len(), name.as_mut_ptr().cast(), name.len(), &mut calls) } {
                return all;
            }
            let end = name.iter().position(|c| *c == 0).expect("it ends with a zero");
            all.push((String::from_utf8_lossy(&name[..end]).into_owned(), calls));
        }
    }

    /// Waits until nothing is left, for a while: what ends last may do so on a thread of the driver.
    #[expect(clippy::disallowed_methods, reason = "the driver's threads are not the scheduler's")]
    pub(crate) fn settle(&self) -> Report {
        let looks = (0..500).map(|_| self.report());
        let pause = |report: &Report| {
            report.leaks == 0 || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        };
        looks.into_iter().find(pause).unwrap_or_else(|| self.report())
    }

    /// Nothing went wrong that a GPU would not tell of, and nothing is left.
    #[track_caller]
    pub(crate) fn assert_clean(&self) -> Report {
        let report = self.settle();
        assert_eq!((report.races, report.forbidden, report.leaks), (0, 0, 0), "{report:?}");
        report
    }
}
