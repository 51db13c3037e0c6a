//! PNG to RGB: every bit depth and colour type.
//!
//! Colours are brought to 8 bits a channel: fewer bits are stretched to the whole range, of 16 the upper 8 are kept. Gray becomes
//! three equal channels. Alpha, and a palette's or colour key's transparency, is dropped and not composited, as Pillow's
//! `convert("RGB")` does. Of an animation the default image is taken. Checksums are verified.

use std::io::Cursor;

use png::{ColorType, DecodeOptions, Decoder, DecodingError, Limits, Transformations};

use super::{
    header::{Format, Header},
    orientation::Orientation,
};
use crate::failure::{Failure, FailureKind};

/// The first bytes of every PNG.
pub(crate) const MAGIC: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

fn truncated(encoded: &[u8], place: &str) -> Failure {
    Failure::new(FailureKind::Truncated, format!("the PNG ends {place}, at byte {}", encoded.len()))
}

fn corrupt(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Corrupt, message.into())
}

/// Chunks of a PNG, without a look at their checksums.
struct Chunks<'a> {
    encoded: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<([u8; 4], &'a [u8]), Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.encoded.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        let Some((&[a, b, c, d, ref kind @ ..], body)) = rest.split_first_chunk::<8>() else {
            self.at = self.encoded.len();
            return Some(Err(truncated(self.encoded, "between two chunks")));
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(content) = body.get(..length).filter(|_| body.len() >= length.saturating_add(4)) else {
            self.at = self.encoded.len();
            return Some(Err(truncated(self.encoded, &format!("in its chunk {}", kind.escape_ascii()))));
        };
        self.at += 12 + length;
        Some(Ok((*kind, content)))
    }
}

/// Reads the size and, wherever it stands, the orientation; and finds the end.
pub(crate) fn header(encoded: &[u8]) -> Result<Header, Failure> {
    let mut chunks = Chunks { encoded, at: MAGIC.len() };
    let (kind, content) = chunks.next().unwrap_or_else(|| Err(truncated(encoded, "before its header")))?;
    if kind != *b"IHDR" {
        return Err(corrupt(format!("the first chunk of the PNG is {}, not IHDR", kind.escape_ascii())));
    }
    let &[w3, w2, w1, w0, h3, h2, h1, h0, bits, colour, _, _, interlace] = content else {
        return Err(corrupt(format!("a PNG header of {} bytes instead of 13", content.len())));
    };
    let (width, height) = (u32::from_be_bytes([w3, w2, w1, w0]), u32::from_be_bytes([h3, h2, h1, h0]));
    if width == 0 || height == 0 {
        return Err(corrupt(format!("PNG of {width} × {height} pixels")));
    }
    let channels = match colour {
        0 | 3 => 1,
        4 => 2,
        2 => 3,
        6 => 4,
        _ => return Err(corrupt(format!("PNG of colour type {colour}"))),
    };
    let mut header = Header {
        format: Format::Png,
        width,
        height,
        channels,
        bits,
        progressive: interlace != 0,
        orientation: Orientation::Upright,
    };
    for chunk in chunks {
        match chunk? {
            (kind, content) if kind == *b"eXIf" => header.orientation = Orientation::from_tiff(content),
            (kind, _) if kind == *b"IEND" => return Ok(header),
            _ => {}
        }
    }
    Err(truncated(encoded, "without an end chunk"))
}

/// Bytes a pixel that decoding `header` needs at its fullest.
pub(crate) fn bytes_per_pixel(header: &Header) -> u64 {
    // A palette or a colour key may add an alpha channel, and 16 bits are halved row by row.
    u64::from(header.channels.max(3) + 1)
}

/// Decodes to RGB at the start of `frame`, which grows where it is too small.
pub(crate) fn decode(encoded: &[u8], header: &Header, frame: &mut Vec<u8>) -> Result<(), Failure> {
    let mut options = DecodeOptions::default();
    options.set_ignore_text_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(encoded), options);
    // Room for two rows and the tables. The frame is ours and has been checked against the caller's limits.
    let row = header.width as usize * usize::from(header.channels) * usize::from(header.bits.div_ceil(8));
    decoder.set_limits(Limits { bytes: 4 * row + (1 << 20) });
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let failed = |error| failure(error, encoded);
    let mut reader = decoder.read_info().map_err(failed)?;
    let pixels = header.width as usize * header.height as usize;
    let native = reader.output_buffer_size().ok_or_else(|| Failure::new(FailureKind::TooLarge, "a PNG larger than memory"))?;
    super::scratch::grow(frame, native.max(3 * pixels));
    let info = reader.next_frame(&mut frame[..native]).map_err(failed)?;
    if (info.width, info.height) != (header.width, header.height) {
        return Err(corrupt(format!(
            "a frame of {} × {} in a PNG of {} × {}",
            info.width, info.height, header.width, header.height
        )));
    }
    reader.finish().map_err(failed)?;
    to_rgb(info.color_type, frame, pixels)
}

/// Makes three channels of however many `pixels` have, in place.
fn to_rgb(colour: ColorType, frame: &mut [u8], pixels: usize) -> Result<(), Failure> {
    match colour {
        ColorType::Rgb => {}
        // Shrinking runs forwards, growing backwards, so that no pixel is overwritten before it is read.
        ColorType::Rgba => (0..pixels).for_each(|i| frame.copy_within(4 * i..4 * i + 3, 3 * i)),
        ColorType::Grayscale => (0..pixels).rev().for_each(|i| {
            let gray = frame[i];
            frame[3 * i..3 * i + 3].fill(gray);
        }),
        ColorType::GrayscaleAlpha => (0..pixels).rev().for_each(|i| {
            let gray = frame[2 * i];
            frame[3 * i..3 * i + 3].fill(gray);
        }),
        ColorType::Indexed => return Err(corrupt("a PNG palette that was not expanded")),
    }
    Ok(())
}

fn failure(error: DecodingError, encoded: &[u8]) -> Failure {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => truncated(encoded, "in its pixels"),
        DecodingError::LimitsExceeded => Failure::new(FailureKind::TooLarge, "a PNG whose tables exceed the limit"),
        // Data that run out before the picture does, although the file has its end.
        DecodingError::Format(error) if error.to_string().contains("not have enough data") => {
            Failure::new(FailureKind::Truncated, format!("PNG: {error}"))
        }
        error => corrupt(format!("PNG: {error}")),
    }
}
