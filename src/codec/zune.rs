//! JPEG in pure Rust, by `zune-jpeg`.
//!
//! `zune-jpeg` goes on with zero bits when a scan's data end early, and passes over bytes that are left when the picture is
//! complete. Both are signs of damage that libjpeg reports. So it reads through a [`Watch`], which knows where the data end
//! and notes where the decoder last refilled its bits. The decoder refills while fewer than 4 bytes are buffered, at most 4
//! unstuffed bytes (8 stored) at a time. A last refill that began more than 4 bytes behind the end means that bits were made up;
//! one that began more than 8 bytes before it means that data were left over.
//!
//! This holds for a picture in one scan without restart markers, as nearly all are. In others, strict mode finds much of the damage,
//! and the missing end marker is always found ([`Frame::extent`](super::jpeg::Frame::extent)).

use zune_jpeg::{
    JpegDecoder,
    errors::DecodeErrors,
    zune_core::{
        bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom},
        colorspace::ColorSpace,
        options::DecoderOptions,
    },
};

use super::{header::Header, jpeg};
use crate::failure::{Failure, FailureKind};

/// Bytes made up behind the end of a single scan, before the end-of-image marker is shown.
const PADDING: usize = 32;

/// The file, as the decoder sees it. Behind `end` follow zeros and an end-of-image marker.
struct Watch<'a> {
    encoded: &'a [u8],
    end: usize,
    padding: usize,
    at: usize,
    refill: &'a std::cell::Cell<usize>,
}

impl Watch<'_> {
    #[inline(always)]
    fn byte(&self, at: usize) -> Option<u8> {
        if at < self.end { Some(self.encoded[at]) } else { self.behind(at - self.end) }
    }

    #[cold]
    fn behind(&self, offset: usize) -> Option<u8> {
        match offset.checked_sub(self.padding) {
            None => Some(0),
            Some(0) => Some(0xff),
            Some(1) => Some(0xd9),
            Some(_) => None,
        }
    }

    fn len(&self) -> usize {
        self.end + self.padding + 2
    }

    #[cold]
    fn read_slowly(&mut self, buf: &mut [u8]) -> usize {
        let mut count = 0;
        for place in buf {
            let Some(byte) = self.byte(self.at) else { break };
            *place = byte;
            self.at += 1;
            count += 1;
        }
        count
    }
}

impl ZByteReaderTrait for Watch<'_> {
    #[inline(always)]
    fn read_byte_no_error(&mut self) -> u8 {
        let byte = self.byte(self.at).unwrap_or(0);
        self.at += 1;
        byte
    }

    #[inline(always)]
    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        // Only refills read four bytes at once.
        if buf.len() == 4 {
            self.refill.set(self.at);
        }
        if self.at + buf.len() <= self.end {
            buf.copy_from_slice(&self.encoded[self.at..self.at + buf.len()]);
            self.at += buf.len();
            return Ok(());
        }
        let start = self.at;
        let count = self.read_slowly(buf);
        if count < buf.len() {
            self.at = start;
            return Err(ZByteIoError::NotEnoughBytes(count, buf.len()));
        }
        Ok(())
    }

    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        Ok(self.read_slowly(buf))
    }

    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        let start = self.at;
        let count = self.read_slowly(buf);
        self.at = start;
        Ok(count)
    }

    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        match self.peek_bytes(buf)? {
            count if count == buf.len() => Ok(()),
            count => Err(ZByteIoError::NotEnoughBytes(count, buf.len())),
        }
    }

    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        let (base, offset) = match from {
            ZSeekFrom::Start(at) => (at as usize, 0),
            ZSeekFrom::End(offset) => (self.len(), offset),
            ZSeekFrom::Current(offset) => (self.at, offset),
        };
        self.at = base.checked_add_signed(offset as isize).ok_or(ZByteIoError::SeekError("before the start"))?;
        Ok(self.at as u64)
    }

    #[inline(always)]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        Ok(self.at >= self.len())
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok(self.at as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        let start = sink.len();
        sink.extend((self.at..self.len()).filter_map(|at| self.byte(at)));
        self.at = self.len();
        Ok(sink.len() - start)
    }
}

/// Decodes to RGB at the start of `frame`, which grows where it is too small.
pub(crate) fn decode(encoded: &[u8], frame: &jpeg::Frame, pixels: &mut Vec<u8>) -> Result<(), Failure> {
    let header = &frame.header;
    let extent = frame.extent(encoded)?;
    let refill = std::cell::Cell::new(0);
    let watch = Watch { encoded, end: extent.end, padding: if extent.single_scan { PADDING } else { 0 }, at: 0, refill: &refill };
    let options = DecoderOptions::new_fast()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(watch, options);
    decoder.decode_headers().map_err(|error| failure(&error, header, encoded))?;
    let size = header.width as usize * header.height as usize * 3;
    if decoder.output_buffer_size() != Some(size) {
        return Err(Failure::new(FailureKind::Corrupt, "JPEG: the decoder reads another size from the headers"));
    }
    super::scratch::grow(pixels, size);
    decoder.decode_into(&mut pixels[..size]).map_err(|error| failure(&error, header, encoded))?;
    if extent.single_scan && !frame.restarts {
        let (refill, end) = (refill.get(), extent.end);
        if refill > end + 4 {
            return Err(Failure::new(FailureKind::Truncated, format!("the JPEG's scan ends too early, at byte {end}")));
        }
        if refill + 8 < end {
            let message = format!("the JPEG's picture is complete at byte {refill}, but its scan goes on to byte {end}");
            return Err(Failure::new(FailureKind::Corrupt, message));
        }
    }
    Ok(())
}

fn failure(error: &DecodeErrors, header: &Header, encoded: &[u8]) -> Failure {
    let place = format!("in a JPEG of {} × {} and {} bytes", header.width, header.height, encoded.len());
    let (kind, cause) = match error {
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => (FailureKind::Truncated, "the data run out".to_owned()),
        DecodeErrors::FormatStatic(words) if words.contains("Premature") => {
            (FailureKind::Truncated, "the data run out".to_owned())
        }
        DecodeErrors::Unsupported(scheme) => (FailureKind::Unsupported, format!("{scheme:?}")),
        DecodeErrors::LargeDimensions(_) => (FailureKind::TooLarge, "larger than the decoder takes".to_owned()),
        DecodeErrors::FormatStatic(words) => (FailureKind::Corrupt, (*words).to_owned()),
        DecodeErrors::Format(words)
        | DecodeErrors::HuffmanDecode(words)
        | DecodeErrors::DqtError(words)
        | DecodeErrors::SosError(words)
        | DecodeErrors::SofError(words)
        | DecodeErrors::MCUError(words) => (FailureKind::Corrupt, words.trim_end().to_owned()),
        other => (FailureKind::Corrupt, format!("{other:?}")),
    };
    Failure::new(kind, format!("{cause}, {place}"))
}
