//! How a camera was held: the EXIF orientation tag, and undoing it.

/// The EXIF orientation of an image: what must be done to the stored pixels so that up is up.
///
/// The discriminants are the values of EXIF tag 0x0112.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Orientation {
    /// Stored as seen.
    #[default]
    Upright = 1,
    /// Mirrored left to right.
    MirroredHorizontally = 2,
    /// Turned by half a turn.
    Rotated180 = 3,
    /// Mirrored top to bottom.
    MirroredVertically = 4,
    /// Mirrored along the main diagonal.
    Transposed = 5,
    /// To be turned a quarter clockwise.
    Rotated90 = 6,
    /// Mirrored along the other diagonal.
    Transversed = 7,
    /// To be turned a quarter counter-clockwise.
    Rotated270 = 8,
}

impl Orientation {
    /// The orientation of a tag's value; `None` for a value that EXIF does not define.
    pub fn from_tag(value: u16) -> Option<Orientation> {
        use Orientation::*;
        Some(match value {
            1 => Upright,
            2 => MirroredHorizontally,
            3 => Rotated180,
            4 => MirroredVertically,
            5 => Transposed,
            6 => Rotated90,
            7 => Transversed,
            8 => Rotated270,
            _ => return None,
        })
    }

    /// Whether width and height change places.
    pub fn swaps_sides(self) -> bool {
        self as u8 >= 5
    }

    /// Reads the tag from a TIFF structure, the content of an EXIF block.
    ///
    /// A block that cannot be read, or holds an undefined value, says nothing: such images are taken as upright, as Pillow and
    /// browsers do.
    pub(crate) fn from_tiff(tiff: &[u8]) -> Orientation {
        Orientation::find_tag(tiff).and_then(Orientation::from_tag).unwrap_or_default()
    }

    fn find_tag(tiff: &[u8]) -> Option<u16> {
        const ORIENTATION: u16 = 0x0112;
        const SHORT: u16 = 3;
        let big_endian = match tiff.get(..4)? {
            b"MM\0*" => true,
            b"II*\0" => false,
            _ => return None,
        };
        let u16_at = |at: usize| -> Option<u16> {
            let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
            Some(if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
        };
        let u32_at = |at: usize| -> Option<u32> {
            let bytes = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
            Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let directory = u32_at(4)? as usize;
        let entries = usize::from(u16_at(directory)?);
        (0..entries).map(|i| directory + 2 + 12 * i).find_map(|entry| {
            let found = u16_at(entry)? == ORIENTATION && u16_at(entry + 2)? == SHORT && u32_at(entry + 4)? >= 1;
            if found { u16_at(entry + 8) } else { None }
        })
    }

    /// Writes the upright image of `width` × `height` pixels to `out`. `stored` holds it as the file does, so its sides are
    /// swapped where [`swaps_sides`](Orientation::swaps_sides) says so. Both are RGB, three bytes a pixel.
    pub(crate) fn undo(self, stored: &[u8], out: &mut [u8], width: usize, height: usize) {
        debug_assert_eq!(stored.len(), width * height * 3);
        debug_assert_eq!(out.len(), width * height * 3);
        if width == 0 || height == 0 {
            return;
        }
        // Where the upright image's first pixel lies in the stored one, and the steps to its right and lower neighbour.
        let (w, h) = (width as isize, height as isize);
        let (first, right, down) = match self {
            Orientation::Upright => (0, 1, w),
            Orientation::MirroredHorizontally => (w - 1, -1, w),
            Orientation::Rotated180 => (w * h - 1, -1, -w),
            Orientation::MirroredVertically => (w * (h - 1), 1, -w),
            Orientation::Transposed => (0, h, 1),
            Orientation::Rotated90 => (h * (w - 1), -h, 1),
            Orientation::Transversed => (w * h - 1, -h, -1),
            Orientation::Rotated270 => (h - 1, h, -1),
        };
        let (pixels, _) = stored.as_chunks::<3>();
        for (y, row) in out.chunks_exact_mut(width * 3).enumerate() {
            let mut at = first + y as isize * down;
            for pixel in row.as_chunks_mut::<3>().0 {
                *pixel = pixels[at as usize];
                at += right;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture `ab / cd / ef`, one letter a pixel, as a file with this orientation stores it.
    fn stored(orientation: Orientation) -> &'static str {
        match orientation {
            Orientation::Upright => "abcdef",
            Orientation::MirroredHorizontally => "badcfe",
            Orientation::Rotated180 => "fedcba",
            Orientation::MirroredVertically => "efcdab",
            Orientation::Transposed => "acebdf",
            Orientation::Rotated90 => "bdface",
            Orientation::Transversed => "fdbeca",
            Orientation::Rotated270 => "ecafdb",
        }
    }

    fn pixels(letters: &str) -> Vec<u8> {
        letters.bytes().flat_map(|b| [b, b, b]).collect()
    }

    #[test]
    fn every_orientation_is_undone() {
        for tag in 1..=8 {
            let orientation = Orientation::from_tag(tag).unwrap();
            let mut out = vec![0; 18];
            orientation.undo(&pixels(stored(orientation)), &mut out, 2, 3);
            assert_eq!(out, pixels("abcdef"), "{orientation:?}");
        }
        assert_eq!(Orientation::from_tag(0), None);
        assert_eq!(Orientation::from_tag(9), None);
    }

    #[test]
    fn a_broken_exif_block_says_nothing() {
        let whole = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        assert_eq!(Orientation::from_tiff(whole), Orientation::Rotated90);
        for cut in 0..20 {
            assert_eq!(Orientation::from_tiff(&whole[..cut]), Orientation::Upright, "cut at {cut}");
        }
        assert_eq!(Orientation::from_tiff(b"II*\0\xff\xff\xff\xff"), Orientation::Upright);
    }
}
