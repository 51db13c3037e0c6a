//! What an image file says about itself before anything is decoded.

use super::{jpeg, orientation::Orientation, png};
use crate::failure::{Failure, FailureKind};

/// The formats that are read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG with 8 bits a sample, Huffman coded: baseline, extended or progressive; one, three or four components.
    Jpeg,
    /// PNG of every colour type and bit depth, interlaced or not.
    Png,
}

impl Format {
    /// The format that the first bytes announce. File names are never looked at.
    pub(crate) fn sniff(encoded: &[u8]) -> Result<Format, Failure> {
        const MAGIC: [(Format, &[u8]); 2] = [(Format::Jpeg, &jpeg::MAGIC), (Format::Png, &png::MAGIC)];
        // Formats that turn up in image folders and deserve their name in the message.
        const OTHERS: [(&str, usize, &[u8]); 8] = [
            ("GIF", 0, b"GIF8"),
            ("BMP", 0, b"BM"),
            ("TIFF", 0, b"II*\0"),
            ("TIFF", 0, b"MM\0*"),
            ("WebP", 8, b"WEBP"),
            ("HEIF or AVIF", 4, b"ftyp"),
            ("JPEG 2000", 4, b"jP  "),
            ("JPEG XL", 0, b"\xff\x0a"),
        ];
        if encoded.is_empty() {
            return Err(Failure::new(FailureKind::Truncated, "the file is empty"));
        }
        for (format, magic) in MAGIC {
            if encoded.starts_with(magic) {
                return Ok(format);
            }
            if magic.starts_with(encoded) {
                let message = format!("only {} bytes, too few to tell the format", encoded.len());
                return Err(Failure::new(FailureKind::Truncated, message));
            }
        }
        let named = OTHERS.iter().find(|(_, at, magic)| encoded.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
        let message = match named {
            Some((name, ..)) => format!("{name} is not read here, only JPEG and PNG"),
            None => format!("neither JPEG nor PNG: starts with \"{}\"", encoded[..encoded.len().min(8)].escape_ascii()),
        };
        Err(Failure::new(FailureKind::Unsupported, message))
    }

    /// Its name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
        }
    }
}

/// What an image file says about itself. Sides are as stored, before the orientation is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its format.
    pub format: Format,
    /// Width as stored \[px\], at least 1.
    pub width: u32,
    /// Height as stored \[px\], at least 1.
    pub height: u32,
    /// Channels as stored: 1 gray, 2 gray with alpha, 3 colour, 4 CMYK, or colour with alpha. A palette counts as 1.
    pub channels: u8,
    /// Bits a channel as stored.
    pub bits: u8,
    /// Whether decoding takes several passes over the image: progressive JPEG, interlaced PNG.
    pub progressive: bool,
    /// How to turn it.
    pub orientation: Orientation,
}

impl Header {
    /// Pixels of the image \[px\].
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Width and height once the orientation is undone \[px\].
    pub fn upright(&self) -> (u32, u32) {
        if self.orientation.swaps_sides() { (self.height, self.width) } else { (self.width, self.height) }
    }
}

/// Reads the headers of a JPEG or PNG, and nothing of its pixels: a microsecond or less.
///
/// # Errors
///
/// `Truncated` when the headers are cut off, `Corrupt` when they contradict themselves, `Unsupported` for another format or a
/// variant of these that is not read here. A file whose headers are whole and whose pixels are not is found when it is decoded.
pub fn probe(encoded: &[u8]) -> Result<Header, Failure> {
    match Format::sniff(encoded)? {
        Format::Jpeg => Ok(jpeg::Frame::read(encoded)?.header),
        Format::Png => png::header(encoded),
    }
}
