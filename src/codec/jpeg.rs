//! The structure of a JPEG file: its segments, and where its data end.
//!
//! Decoders differ in what they forgive: some fill what is missing with gray and say nothing. So the structure is checked here,
//! apart from the decoder, and a file that ends before its end-of-image marker is [`Truncated`](FailureKind::Truncated) whichever
//! decoder is in use.

use memchr::memchr;

use super::{header::Format, header::Header, orientation::Orientation};
use crate::failure::{Failure, FailureKind};

/// The first bytes of a JPEG: start of image, and the first byte of the next marker.
pub(crate) const MAGIC: [u8; 3] = [0xff, 0xd8, 0xff];

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const DRI: u8 = 0xdd;
const APP1: u8 = 0xe1;
const TEM: u8 = 0x01;

/// The frame header, and where the first scan's data begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    /// Offset of the first byte of entropy-coded data.
    scan: usize,
    /// Whether the first scan holds all components.
    interleaved: bool,
    /// Whether restart markers stand in the data.
    pub(crate) restarts: bool,
}

/// Where the entropy-coded data of a whole file end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset of the marker after the last scan, which is end-of-image.
    pub(crate) end: usize,
    /// Whether one scan holds it all, so that `end` is the end of that scan's data.
    pub(crate) single_scan: bool,
}

fn corrupt(message: String) -> Failure {
    Failure::new(FailureKind::Corrupt, message)
}

fn truncated(message: String) -> Failure {
    Failure::new(FailureKind::Truncated, message)
}

/// One segment: its marker, its content without the length, and the offset behind it.
struct Segment<'a> {
    marker: u8,
    content: &'a [u8],
    next: usize,
}

impl<'a> Segment<'a> {
    /// The segment whose marker is the first at or after `at`. Bytes before the marker are passed over; a decoder complains of them.
    fn find(encoded: &'a [u8], at: usize) -> Result<Segment<'a>, Failure> {
        let cut = || truncated(format!("the JPEG ends in its headers, at byte {}", encoded.len()));
        let mut at = at;
        let marker = loop {
            let rest = encoded.get(at..).ok_or_else(cut)?;
            at += rest.iter().position(|&b| b == 0xff).ok_or_else(cut)?;
            at += encoded[at..].iter().position(|&b| b != 0xff).ok_or_else(cut)?;
            match encoded[at] {
                0x00 => at += 1,
                marker => break marker,
            }
        };
        at += 1;
        if matches!(marker, TEM | 0xd0..=SOI | EOI) {
            return Ok(Segment { marker, content: &[], next: at });
        }
        let length = encoded.get(at..at + 2).ok_or_else(cut)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < 2 {
            return Err(corrupt(format!("segment 0xff{marker:02x} at byte {} has length {length}", at - 2)));
        }
        let content = encoded.get(at + 2..at + length).ok_or_else(|| {
            truncated(format!(
                "segment 0xff{marker:02x} at byte {} needs {length} bytes, {} are left",
                at - 2,
                encoded.len() - at
            ))
        })?;
        Ok(Segment { marker, content, next: at + length })
    }
}

impl Frame {
    /// Reads the headers up to the first scan.
    pub(crate) fn read(encoded: &[u8]) -> Result<Frame, Failure> {
        let mut at = 2;
        let mut header: Option<Header> = None;
        let mut orientation = None;
        let mut restarts = false;
        loop {
            let segment = Segment::find(encoded, at)?;
            let place = at;
            at = segment.next;
            match segment.marker {
                0xc0..=0xcf if !matches!(segment.marker, 0xc4 | 0xc8 | 0xcc) => {
                    if header.is_some() {
                        return Err(corrupt(format!("a second frame header at byte {place}")));
                    }
                    header = Some(Frame::start(&segment)?);
                }
                APP1 if orientation.is_none() => {
                    orientation = segment.content.strip_prefix(b"Exif\0\0").map(Orientation::from_tiff);
                }
                DRI => restarts = segment.content.iter().any(|&b| b != 0),
                EOI => return Err(corrupt(format!("the image ends at byte {place} without any data"))),
                SOS => {
                    let mut header = header.ok_or_else(|| corrupt(format!("a scan at byte {place} before the frame header")))?;
                    header.orientation = orientation.unwrap_or_default();
                    let interleaved = segment.content.first() == Some(&header.channels);
                    return Ok(Frame { header, scan: at, interleaved, restarts });
                }
                _ => {}
            }
        }
    }

    fn start(segment: &Segment<'_>) -> Result<Header, Failure> {
        let &[bits, h1, h0, w1, w0, channels, ref rest @ ..] = segment.content else {
            return Err(corrupt(format!("a frame header of {} bytes", segment.content.len())));
        };
        let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
        let unsupported = |what: String| Err(Failure::new(FailureKind::Unsupported, what));
        match segment.marker {
            0xc0..=0xc2 => {}
            0xc3 | 0xc7 | 0xcb | 0xcf => return unsupported("lossless JPEG".into()),
            0xc9 | 0xca | 0xcd | 0xce => return unsupported("arithmetic-coded JPEG".into()),
            _ => return unsupported("hierarchical JPEG".into()),
        }
        if bits != 8 {
            return unsupported(format!("JPEG with {bits} bits a sample, only 8 are read"));
        }
        if !matches!(channels, 1 | 3 | 4) {
            return unsupported(format!("JPEG with {channels} components, only 1, 3 and 4 are read"));
        }
        if height == 0 {
            return unsupported("JPEG of height 0, to be defined after the scan".into());
        }
        if width == 0 {
            return Err(corrupt("JPEG of width 0".into()));
        }
        if rest.len() != 3 * usize::from(channels) {
            return Err(corrupt(format!("a frame header of {} bytes for {channels} components", segment.content.len())));
        }
        Ok(Header {
            format: Format::Jpeg,
            width: width.into(),
            height: height.into(),
            channels,
            bits,
            progressive: segment.marker == 0xc2,
            orientation: Orientation::Upright,
        })
    }

    /// Checks that what follows the headers could hold the picture at all, so that a few bytes cannot claim a gigabyte.
    pub(crate) fn check_plausible(&self, encoded: &[u8]) -> Result<(), Failure> {
        let Header { width, height, progressive, .. } = self.header;
        let bytes = (encoded.len() - self.scan) as u64;
        // Every block of a sequential scan takes two codes, each of one bit at least; a first progressive scan may skip whole runs.
        let blocks = u64::from(width.div_ceil(8)) * u64::from(height.div_ceil(8));
        let bits = if progressive { 1 } else { 2 };
        if bytes * 8 < blocks * bits {
            return Err(truncated(format!("{bytes} bytes of data cannot hold {width} × {height} pixels")));
        }
        Ok(())
    }

    /// Finds the end-of-image marker.
    ///
    /// # Errors
    ///
    /// `Truncated` when the file ends before the marker.
    pub(crate) fn extent(&self, encoded: &[u8]) -> Result<Extent, Failure> {
        let mut at = self.scan;
        let mut scans = 0;
        loop {
            let marker = scan_end(encoded, at).ok_or_else(|| {
                truncated(format!(
                    "the JPEG ends in its scan {}, at byte {}, without an end-of-image marker",
                    scans + 1,
                    encoded.len()
                ))
            })?;
            scans += 1;
            // Tables may stand between scans.
            let mut segment = Segment::find(encoded, marker)?;
            while segment.marker != SOS {
                if segment.marker == EOI {
                    return Ok(Extent { end: marker, single_scan: scans == 1 && self.interleaved });
                }
                segment = Segment::find(encoded, segment.next)?;
            }
            at = segment.next;
        }
    }
}

/// Offset of the first marker at or after `at` that is neither a stuffed byte nor a restart marker.
fn scan_end(encoded: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr(0xff, encoded.get(at..)?)?;
        match encoded.get(at + 1)? {
            0x00 | 0xd0..=0xd7 => at += 2,
            0xff => at += 1,
            _ => return Some(at),
        }
    }
}
