//! Encoded images to pixels: JPEG and PNG to upright RGB of one size.
//!
//! A [`Decoder`] is shared by all threads. It recognises the format by its first bytes, decodes the whole frame into memory that
//! the thread keeps, resizes it with antialiasing straight into the caller's bytes, and undoes the EXIF orientation.
//!
//! ```
//! use towtank::{
//!     codec::{Choice, Decoder, Target},
//!     synth,
//! };
//!
//! let jpeg = synth::jpeg(&synth::Spec::plan(1, 0));
//! let decoder = Decoder::new(Choice::Auto, Target::square(224))?;
//! let mut pixels = vec![0; decoder.target().bytes()]; // [height, width, 3] u8
//! let info = decoder.decode_into(&jpeg, &mut pixels)?;
//! println!("{} × {} pixels by {}", info.header.width, info.header.height, info.backend);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Never silent
//!
//! Every image is either whole or a [`Failure`]: files that end early ([`Truncated`](FailureKind::Truncated)), contradict themselves or
//! their checksums ([`Corrupt`](FailureKind::Corrupt)), are of another format ([`Unsupported`](FailureKind::Unsupported)), or exceed the
//! [`Limits`] ([`TooLarge`](FailureKind::TooLarge)), which are checked before memory is taken. What libjpeg would only warn of is an error
//! here. What nobody can see is damage within a JPEG's scan that still decodes and ends in step: about half of all small gaps, whichever
//! decoder is in use. The Rust backend also passes over gaps inside the scans of progressive JPEGs and of those with restart markers.
//!
//! # Pixels
//!
//! The reference is Pillow, which is libjpeg-turbo: `ImageOps.exif_transpose(image).convert("RGB").resize(size, BILINEAR)`, the same as
//! torchvision's `v2.Resize(size, antialias=True)`. Tests hold every kind of image against it. Differences allowed, of 255:
//!
//! | | mean | largest |
//! | --- | --- | --- |
//! | PNG, and JPEG by libjpeg-turbo, full size | 0 | 0 (CMYK: 1) |
//! | the same, resized | 0.3 | 1 |
//! | JPEG by the Rust backend, full size or resized | 0.5 | 6 (one pixel wide: 16) |

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::failure::{Failure, FailureKind};

mod header;
mod jpeg;
mod orientation;
mod png;
mod resize;
mod scratch;
mod turbo;
mod zune;

pub use header::{Format, Header, probe};
pub use orientation::Orientation;
pub use scratch::scratch_bytes;

use resize::Window;
use scratch::Scratch;

/// Which JPEG decoder to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// libjpeg-turbo when this computer has it, else pure Rust.
    #[default]
    Auto,
    /// Pure Rust, everywhere the same.
    Rust,
    /// libjpeg-turbo; an error when this computer does not have it.
    Turbo,
}

impl Choice {
    /// As scenario files write it.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Auto => "auto",
            Choice::Rust => "rust",
            Choice::Turbo => "turbo",
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no codec: `auto`, `rust` or `turbo`")]
pub struct UnknownChoice(pub String);

impl FromStr for Choice {
    type Err = UnknownChoice;

    fn from_str(word: &str) -> Result<Choice, UnknownChoice> {
        [Choice::Auto, Choice::Rust, Choice::Turbo]
            .into_iter()
            .find(|choice| choice.name() == word)
            .ok_or_else(|| UnknownChoice(word.to_owned()))
    }
}

/// A JPEG decoder in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// `zune-jpeg`, in pure Rust.
    Rust,
    /// libjpeg-turbo, from a shared library of this computer.
    Turbo,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Rust => "rust",
            Backend::Turbo => "turbo",
        })
    }
}

/// How an image of any shape becomes one of the target's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Width and height are scaled apart, as torchvision's `Resize((h, w))` does.
    #[default]
    Squash,
    /// The shorter side is scaled to `shorter`, the longer with it, and the middle is cut out, as `Resize(shorter)` and
    /// `CenterCrop((h, w))` do together. Only what is cut out is computed.
    CenterCrop {
        /// Length of the shorter side before the cut \[px\]; at least the target's longer side.
        shorter: u32,
    },
}

/// The size that every image is brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Width \[px\].
    pub width: u32,
    /// Height \[px\].
    pub height: u32,
    /// How other shapes are brought to it.
    pub fit: Fit,
}

impl Target {
    /// A square of `side` pixels that images are squashed to.
    pub fn square(side: u32) -> Target {
        Target { width: side, height: side, fit: Fit::Squash }
    }

    /// Bytes of one image: `[height, width, 3]` u8 \[B\].
    pub fn bytes(&self) -> usize {
        self.width as usize * self.height as usize * 3
    }

    /// What part of an upright image of `width` × `height` becomes the result.
    fn window(&self, width: u32, height: u32) -> Window {
        let (w, h) = (f64::from(width), f64::from(height));
        let Fit::CenterCrop { shorter } = self.fit else {
            return Window { left: 0.0, top: 0.0, width: w, height: h };
        };
        // torchvision cuts the longer side down to a whole number of pixels, and rounds the offset to even.
        let longer = (u64::from(shorter) * u64::from(width.max(height)) / u64::from(width.min(height))) as f64;
        let (scaled_w, scaled_h) = if width <= height { (f64::from(shorter), longer) } else { (longer, f64::from(shorter)) };
        let (scale_x, scale_y) = (w / scaled_w, h / scaled_h);
        Window {
            left: ((scaled_w - f64::from(self.width)) / 2.0).round_ties_even() * scale_x,
            top: ((scaled_h - f64::from(self.height)) / 2.0).round_ties_even() * scale_y,
            width: f64::from(self.width) * scale_x,
            height: f64::from(self.height) * scale_y,
        }
    }
}

/// What an image may take at most. Both are looked at before any memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pixels of the full-size image \[px\]. The default, 178 956 970, is Pillow's.
    pub pixels_max: u64,
    /// Bytes of the full-size image and of what decoding it needs beside it \[B\]. The default is 1 GiB.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { pixels_max: 178_956_970, bytes_max: 1 << 30 }
    }
}

impl Limits {
    /// Bytes that decoding an image of `header` takes at most, frame included \[B\].
    pub fn bytes_of(header: &Header) -> u64 {
        let per_pixel = match header.format {
            Format::Png => png::bytes_per_pixel(header),
            // A progressive JPEG keeps all its coefficients, two bytes each, until its last scan.
            Format::Jpeg => {
                u64::from(header.channels.max(3)) + if header.progressive { 2 * u64::from(header.channels) } else { 0 }
            }
        };
        header.pixels().saturating_mul(per_pixel)
    }

    fn check(&self, header: &Header) -> Result<(), Failure> {
        let refuse = |what: String| {
            Err(Failure::new(
                FailureKind::TooLarge,
                format!("{} of {} × {}: {what}", header.format.name(), header.width, header.height),
            ))
        };
        if header.pixels() > self.pixels_max {
            return refuse(format!("{} pixels, the limit is {}", header.pixels(), self.pixels_max));
        }
        let bytes = Limits::bytes_of(header);
        if bytes > self.bytes_max || usize::try_from(bytes).is_err() {
            return refuse(format!("needs {bytes} bytes, the limit is {}", self.bytes_max));
        }
        Ok(())
    }
}

/// What was decoded, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// What the file said of itself.
    pub header: Header,
    /// The decoder that made the pixels. PNG is always [`Backend::Rust`].
    pub backend: Backend,
    /// Scratch of this thread while it decoded the image \[B\].
    pub scratch_bytes: u64,
}

/// Why there is no decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecoderError {
    /// `turbo` was asked for, and the library cannot be opened.
    #[error(
        "`codec = \"turbo\"`, but libjpeg-turbo cannot be opened: {cause}\nhint: install it (Debian, Ubuntu: `apt install libturbojpeg0`; Fedora: `turbojpeg`; Homebrew: `jpeg-turbo`), name its file in `TOWTANK_TURBOJPEG`, or take `codec = \"auto\"`"
    )]
    NoTurbo {
        /// In the system's words.
        cause: String,
    },
    /// A side is 0, or larger than 65 535.
    #[error("a target of {width} × {height} pixels: sides must be between 1 and 65535")]
    TargetSize {
        /// Width asked for \[px\].
        width: u32,
        /// Height asked for \[px\].
        height: u32,
    },
    /// Images would be scaled to less than what is cut out of them.
    #[error("the shorter side is scaled to {shorter} pixels, fewer than the {longer} that are cut out")]
    CropTooLarge {
        /// Length of the shorter side before the cut \[px\].
        shorter: u32,
        /// The target's longer side \[px\].
        longer: u32,
    },
}

/// Decodes images to one size. Cheap to clone, shared by threads; each thread has its own scratch.
#[derive(Clone, Debug)]
pub struct Decoder {
    backend: Backend,
    target: Target,
    limits: Limits,
    /// The most scratch that one thread held for this decoder.
    peak_bytes: Arc<AtomicU64>,
}

impl Decoder {
    /// A decoder to `target`, with the default [`Limits`].
    ///
    /// # Errors
    ///
    /// [`DecoderError::NoTurbo`] when `choice` is [`Choice::Turbo`] and this computer has no libjpeg-turbo; the others for a target that
    /// makes no sense.
    pub fn new(choice: Choice, target: Target) -> Result<Decoder, DecoderError> {
        let Target { width, height, fit } = target;
        let sides = 1..=u32::from(u16::MAX);
        if !sides.contains(&width) || !sides.contains(&height) {
            return Err(DecoderError::TargetSize { width, height });
        }
        let longer = width.max(height);
        match fit {
            Fit::CenterCrop { shorter } if shorter < longer => return Err(DecoderError::CropTooLarge { shorter, longer }),
            Fit::CenterCrop { .. } | Fit::Squash => {}
        }
        let backend = match (choice, turbo::describe()) {
            (Choice::Rust, _) | (Choice::Auto, Err(_)) => Backend::Rust,
            (Choice::Turbo, Err(cause)) => return Err(DecoderError::NoTurbo { cause }),
            (Choice::Auto | Choice::Turbo, Ok(_)) => Backend::Turbo,
        };
        Ok(Decoder { backend, target, limits: Limits::default(), peak_bytes: Arc::default() })
    }

    /// The same decoder with other limits.
    pub fn with_limits(self, limits: Limits) -> Decoder {
        Decoder { limits, ..self }
    }

    /// The JPEG decoder in use.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The JPEG decoder in use, with its version: `zune-jpeg 0.5` or `libjpeg-turbo 2 (libturbojpeg.so.0)`.
    pub fn description(&self) -> String {
        match self.backend {
            Backend::Rust => "zune-jpeg 0.5".to_owned(),
            Backend::Turbo => turbo::describe().unwrap_or_else(|cause| cause),
        }
    }

    /// The size images are brought to.
    pub fn target(&self) -> Target {
        self.target
    }

    /// What images may take at most.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The most scratch that one thread has held for this decoder so far \[B\]. It is at most [`Limits::bytes_of`] the largest image, and
    /// two small images and the resizer's rows beside it.
    pub fn peak_scratch_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }

    /// Decodes one image into `out`, `[height, width, 3]` u8 of exactly [`Target::bytes`] bytes.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Corrupt`, `Unsupported` or `TooLarge`, with what was wrong and where. What `out` holds then is unspecified.
    ///
    /// # Panics
    ///
    /// When `out` has another length.
    pub fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> Result<Info, Failure> {
        assert_eq!(out.len(), self.target.bytes(), "the slot is not of the target's size");
        self.with_frame(encoded, |scratch, header| {
            let Target { width, height, .. } = self.target;
            let orientation = header.orientation;
            let (upright_width, upright_height) = header.upright();
            let window = self.target.window(upright_width, upright_height);
            let Scratch { frame, turned, resizer, .. } = scratch;
            let source = &frame[..header.pixels() as usize * 3];
            let size = (header.width, header.height);
            if orientation == Orientation::Upright {
                resizer.resize(source, size, window, out, (width, height));
                return Ok(());
            }
            // Turning the small image costs less than turning the large one, and comes to the same.
            let (stored_window, stored_size) = stored(orientation, window, (upright_width, upright_height), (width, height));
            scratch::grow(turned, out.len());
            let turned = &mut turned[..out.len()];
            resizer.resize(source, size, stored_window, turned, stored_size);
            orientation.undo(turned, out, width as usize, height as usize);
            Ok(())
        })
    }

    /// Decodes one image in its own size, upright, `[height, width, 3]` u8, into `out`, whose old content is replaced. Width and height are
    /// those of [`Header::upright`].
    ///
    /// # Errors
    ///
    /// As [`decode_into`](Decoder::decode_into).
    pub fn decode_full(&self, encoded: &[u8], out: &mut Vec<u8>) -> Result<Info, Failure> {
        self.with_frame(encoded, |scratch, header| {
            let bytes = header.pixels() as usize * 3;
            let (width, height) = header.upright();
            out.clear();
            out.resize(bytes, 0);
            header.orientation.undo(&scratch.frame[..bytes], out, width as usize, height as usize);
            Ok(())
        })
    }

    /// Decodes one image and keeps its pixels to itself: what decoding costs without resizing, for calibration and benchmarks.
    ///
    /// # Errors
    ///
    /// As [`decode_into`](Decoder::decode_into).
    pub fn decode_only(&self, encoded: &[u8]) -> Result<Info, Failure> {
        self.with_frame(encoded, |_, _| Ok(()))
    }

    /// Decodes the frame as stored into this thread's scratch and hands it to `then`.
    fn with_frame(
        &self,
        encoded: &[u8],
        then: impl FnOnce(&mut Scratch, &Header) -> Result<(), Failure>,
    ) -> Result<Info, Failure> {
        let (result, scratch_bytes) = Scratch::with(|scratch| {
            let (header, backend) = self.decode_frame(encoded, scratch)?;
            then(scratch, &header)?;
            Ok((header, backend))
        });
        self.peak_bytes.fetch_max(scratch_bytes, Relaxed);
        result.map(|(header, backend)| Info { header, backend, scratch_bytes })
    }

    fn decode_frame(&self, encoded: &[u8], scratch: &mut Scratch) -> Result<(Header, Backend), Failure> {
        if Format::sniff(encoded)? == Format::Png {
            let header = png::header(encoded)?;
            self.limits.check(&header)?;
            guarded(|| png::decode(encoded, &header, &mut scratch.frame))?;
            return Ok((header, Backend::Rust));
        }
        let frame = jpeg::Frame::read(encoded)?;
        self.limits.check(&frame.header)?;
        frame.check_plausible(encoded)?;
        if self.backend == Backend::Turbo {
            let mut handle = match scratch.turbo.take() {
                Some(handle) => handle,
                None => turbo::Handle::new()?,
            };
            match handle.decode(encoded, &frame, &mut scratch.frame) {
                Ok(()) => {
                    scratch.turbo = Some(handle);
                    return Ok((frame.header, Backend::Turbo));
                }
                // Of a file that is cut off the library may complain in other words. The handle is not used again: after some errors in
                // headers, version 2 takes the next file for the rest of this one.
                Err(turbo::Refusal::Failed(failure)) => return Err(frame.extent(encoded).err().unwrap_or(failure)),
                Err(turbo::Refusal::Doubtful) => {}
            }
        }
        guarded(|| zune::decode(encoded, &frame, &mut scratch.frame))?;
        Ok((frame.header, Backend::Rust))
    }
}

/// Decodes by a library that should not panic whatever the bytes; if it does after all, the image is corrupt. Nothing that outlives the call is
/// left half-done: the frame is bytes.
fn guarded(decode: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|payload| {
        let cause = Failure::panicked(&*payload).into_message();
        Err(Failure::new(FailureKind::Corrupt, format!("the decoder cannot cope with the image: {cause}")))
    })
}

/// The window and the size of the result as the file's pixels lie, from those of the upright image of `upright` pixels.
fn stored(orientation: Orientation, window: Window, upright: (u32, u32), size: (u32, u32)) -> (Window, (u32, u32)) {
    use Orientation::*;
    let Window { mut left, mut top, width, height } = window;
    if matches!(orientation, MirroredHorizontally | Rotated180 | Transversed | Rotated90) {
        left = f64::from(upright.0) - left - width;
    }
    if matches!(orientation, MirroredVertically | Rotated180 | Transversed | Rotated270) {
        top = f64::from(upright.1) - top - height;
    }
    if orientation.swaps_sides() {
        (Window { left: top, top: left, width: height, height: width }, (size.1, size.0))
    } else {
        (Window { left, top, width, height }, size)
    }
}
