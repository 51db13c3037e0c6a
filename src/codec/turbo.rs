//! JPEG by libjpeg-turbo, opened at run time.
//!
//! Nothing is needed at build time: the shared library is looked for once per process, under its usual names, and its TurboJPEG
//! functions of version 1.4 and later are called. Each thread has its own handle. The accurate DCT and smooth ("fancy")
//! upsampling are used, as libjpeg, Pillow and torchvision do.
//!
//! A *warning* of the library, such as data that end early, is an error here: it means that pixels were made up.

use std::{
    error::Error,
    ffi::{CStr, c_char, c_int, c_uchar, c_ulong, c_void},
    ptr::NonNull,
    sync::OnceLock,
};

use libloading::Library;

use super::jpeg;
use crate::failure::{Failure, FailureKind};

/// Names under which the library is looked for, in this order.
const NAMES: &[&str] = &[
    "libturbojpeg.so.0",
    "libturbojpeg.so",
    "/opt/libjpeg-turbo/lib64/libturbojpeg.so.0",
    "libturbojpeg.0.dylib",
    "libturbojpeg.dylib",
    "/opt/homebrew/opt/jpeg-turbo/lib/libturbojpeg.dylib",
    "/usr/local/opt/jpeg-turbo/lib/libturbojpeg.dylib",
    "turbojpeg.dll",
];

/// The variable that names the library's file, instead of the usual names.
const VARIABLE: &str = "TOWTANK_TURBOJPEG";

type InitDecompress = unsafe extern "C" fn() -> *mut c_void;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetErrorStr = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Decompress = unsafe extern "C" fn(
    *mut c_void,
    *const c_uchar,
    c_ulong,
    *mut c_uchar,
    c_int, // width
    c_int, // bytes a row
    c_int, // height
    c_int, // pixel format
    c_int, // flags
) -> c_int;
type DecompressHeader = unsafe extern "C" fn(
    *mut c_void,
    *const c_uchar,
    c_ulong,
    *mut c_int, // width
    *mut c_int, // height
    *mut c_int, // subsampling
    *mut c_int, // colour space
) -> c_int;

const FORMAT_RGB: c_int = 0;
const FORMAT_CMYK: c_int = 11;
const FLAG_ACCURATE_DCT: c_int = 4096;
/// At most 500 scans, so that a small file of many scans cannot take minutes. Known from version 2.1 on, ignored before.
const FLAG_LIMIT_SCANS: c_int = 32768;

/// The library's functions. They are called only while the library is open, which it stays until the process ends.
struct Functions {
    init: InitDecompress,
    destroy: Destroy,
    header: DecompressHeader,
    decompress: Decompress,
    error: GetErrorStr,
    name: String,
    generation: &'static str,
    _library: Library,
}

impl Functions {
    fn open(names: &[&str]) -> Result<Functions, String> {
        let mut causes = Vec::new();
        for name in names {
            // SAFETY: opening a library runs its initializers. These names belong to libjpeg-turbo, whose have no effects of
            // their own; a name from the user's environment is the user's own choice, as `LD_PRELOAD` is.
            match unsafe { Library::new(*name) } {
                Ok(library) => return Functions::bind(library, name),
                // The system's words name the file, unless another thread asked it for words at the same time.
                Err(error) => causes.push(match cause(&error) {
                    cause if cause.contains(name) => cause,
                    cause => format!("{name}: {cause}"),
                }),
            }
        }
        Err(causes.first().cloned().unwrap_or_default())
    }

    fn bind(library: Library, name: &str) -> Result<Functions, String> {
        let missing = |error: libloading::Error| format!("{name}: {}", cause(&error));
        // SAFETY: each type repeats the declaration in turbojpeg.h, which is the same in versions 1.4 to 3.
        unsafe {
            let generation = if library.get::<InitDecompress>(b"tj3Init\0").is_ok() {
                "3"
            } else if library.get::<GetErrorStr>(b"tjGetErrorCode\0").is_ok() {
                "2"
            } else {
                return Err(format!("{name} is older than libjpeg-turbo 2.0"));
            };
            Ok(Functions {
                init: *library.get(b"tjInitDecompress\0").map_err(missing)?,
                destroy: *library.get(b"tjDestroy\0").map_err(missing)?,
                header: *library.get(b"tjDecompressHeader3\0").map_err(missing)?,
                decompress: *library.get(b"tjDecompress2\0").map_err(missing)?,
                error: *library.get(b"tjGetErrorStr2\0").map_err(missing)?,
                name: name.to_owned(),
                generation,
                _library: library,
            })
        }
    }
}

/// The system's own words, which the library keeps as the source of its error.
fn cause(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn functions() -> Result<&'static Functions, &'static str> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let found = FUNCTIONS.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(path) => Functions::open(&[&path]),
        Err(_) => Functions::open(NAMES),
    });
    found.as_ref().map_err(String::as_str)
}

/// What the library calls itself, such as `libjpeg-turbo 2 (libturbojpeg.so.0)`; or why there is none.
pub(crate) fn describe() -> Result<String, String> {
    let functions = functions()?;
    Ok(format!("libjpeg-turbo {} ({})", functions.generation, functions.name))
}

/// A decompressor. It belongs to one thread at a time.
pub(crate) struct Handle {
    raw: NonNull<c_void>,
    functions: &'static Functions,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from `tjInitDecompress` and is destroyed once, here.
        unsafe { (self.functions.destroy)(self.raw.as_ptr()) };
    }
}

/// How a decoding by the library ended short of success.
pub(crate) enum Refusal {
    /// The library found the data wrong.
    Failed(Failure),
    /// It remarked on something harmless, and perhaps on something worse after that: it tells only its first remark. Another
    /// decoder has to say.
    Doubtful,
}

impl Handle {
    pub(crate) fn new() -> Result<Handle, Failure> {
        let functions = functions().map_err(|cause| Failure::new(FailureKind::Unsupported, format!("libjpeg-turbo: {cause}")))?;
        // SAFETY: the function takes nothing and returns a handle or null.
        let raw = unsafe { (functions.init)() };
        let raw = NonNull::new(raw).ok_or_else(|| Failure::new(FailureKind::Lost, "libjpeg-turbo gives no handle"))?;
        Ok(Handle { raw, functions })
    }

    fn words(&self) -> String {
        // SAFETY: the function returns a string that ends in a zero byte and lives in the handle until its next call.
        let words = unsafe { CStr::from_ptr((self.functions.error)(self.raw.as_ptr())) };
        words.to_string_lossy().into_owned()
    }

    /// Decodes to RGB at the start of `pixels`, which grows where it is too small.
    pub(crate) fn decode(&mut self, encoded: &[u8], frame: &jpeg::Frame, pixels: &mut Vec<u8>) -> Result<(), Refusal> {
        let header = &frame.header;
        let (width, height) = (header.width as usize, header.height as usize);
        let (format, depth) = if header.channels == 4 { (FORMAT_CMYK, 4) } else { (FORMAT_RGB, 3) };
        let raw = self.raw.as_ptr();
        // On some systems `c_ulong` has 32 bits.
        let length = c_ulong::try_from(encoded.len())
            .map_err(|_| Refusal::Failed(Failure::new(FailureKind::TooLarge, "a JPEG of more than 4 GiB")))?;
        let (mut w, mut h, mut subsampling, mut space) = (0, 0, 0, 0);
        // SAFETY: `encoded` is `length` readable bytes, and the four places outlive the call.
        let read =
            unsafe { (self.functions.header)(raw, encoded.as_ptr(), length, &mut w, &mut h, &mut subsampling, &mut space) };
        if read != 0 {
            return Err(self.refusal(frame, encoded));
        }
        if (w, h) != (header.width as c_int, header.height as c_int) {
            let message = "JPEG: libjpeg-turbo reads another size from the headers";
            return Err(Refusal::Failed(Failure::new(FailureKind::Corrupt, message)));
        }
        super::scratch::grow(pixels, width * height * depth);
        // SAFETY: as above; and `pixels` is at least `height` rows of `width * depth` writable bytes. The library writes no more
        // than the size it is given: where the headers announced a larger one it would scale down or refuse.
        let decoded = unsafe {
            (self.functions.decompress)(
                raw,
                encoded.as_ptr(),
                length,
                pixels.as_mut_ptr(),
                w,
                w * depth as c_int,
                h,
                format,
                FLAG_ACCURATE_DCT | FLAG_LIMIT_SCANS,
            )
        };
        if decoded != 0 {
            return Err(self.refusal(frame, encoded));
        }
        if depth == 4 {
            cmyk_to_rgb(&mut pixels[..width * height * 4]);
        }
        Ok(())
    }

    fn refusal(&self, frame: &jpeg::Frame, encoded: &[u8]) -> Refusal {
        // Remarks that do not concern the pixels, and features that another decoder may have.
        const DOUBTFUL: [&str; 5] = [
            "unknown JFIF revision",
            "Unknown Adobe color transform",
            "Invalid SOS parameters",
            "Inconsistent progression",
            "subsampling",
        ];
        let words = self.words();
        if DOUBTFUL.iter().any(|doubtful| words.contains(doubtful)) {
            return Refusal::Doubtful;
        }
        let kind = if words.contains("remature end") || words.contains("Empty input") {
            FailureKind::Truncated
        } else if words.contains("nsupported") || words.contains("not implemented") || words.contains("not supported") {
            FailureKind::Unsupported
        } else if words.contains("Maximum supported image dimension") {
            FailureKind::TooLarge
        } else {
            FailureKind::Corrupt
        };
        let header = &frame.header;
        let message = format!("{words}, in a JPEG of {} × {} and {} bytes", header.width, header.height, encoded.len());
        Refusal::Failed(Failure::new(kind, message))
    }
}

/// Makes RGB of inverted CMYK, as Adobe's programs store it and as all readers take it; in place, with Pillow's rounding.
fn cmyk_to_rgb(pixels: &mut [u8]) {
    for i in 0..pixels.len() / 4 {
        let [c, m, y, k] = [0, 1, 2, 3].map(|channel| pixels[4 * i + channel]);
        for (channel, ink) in [c, m, y].into_iter().enumerate() {
            let product = u32::from(255 - ink) * u32::from(k) + 128;
            pixels[3 * i + channel] = k.saturating_sub((((product >> 8) + product) >> 8) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error_with_its_name() {
        let error = Functions::open(&["libturbojpeg-of-another-world.so"]).err().unwrap();
        assert!(error.contains("libturbojpeg-of-another-world.so"), "{error}");
    }

    #[test]
    fn a_library_that_is_another_is_an_error() {
        let Err(error) = Functions::open(&["libc.so.6"]) else { panic!("libc is not libjpeg-turbo") };
        assert!(error.contains("libc.so.6"), "{error}");
    }

    #[test]
    fn inverted_cmyk_becomes_rgb() {
        let mut pixels = vec![255, 255, 255, 255, 0, 255, 255, 255, 255, 255, 255, 0, 128, 128, 128, 128];
        cmyk_to_rgb(&mut pixels);
        assert_eq!(pixels[..12], [255, 255, 255, 0, 255, 255, 0, 0, 0, 64, 64, 64]);
    }
}
