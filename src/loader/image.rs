//! The last step for images: decoding into the slot.

use super::Fill;
use crate::{
    codec::Decoder,
    failure::Failure,
    machine::{Encoded, Item, Pixels, Work},
};

/// Fills the slot of a sample with its image, `[height, width, 3]` u8 RGB, as a [`Decoder`] makes it.
///
/// The slot has [`Target::bytes`](crate::codec::Target::bytes) bytes.
#[derive(Clone, Debug)]
pub struct DecodeImage(Decoder);

impl DecodeImage {
    /// Decodes with `decoder`.
    pub fn new(decoder: Decoder) -> DecodeImage {
        DecodeImage(decoder)
    }
}

impl Fill<Pixels, Encoded> for DecodeImage {
    fn work(&self, _: Item, encoded: &Encoded) -> Work {
        Work { kind: "decode", bytes: encoded.data.len() as u64, pixels: encoded.pixels }
    }

    fn fill(&self, _: Item, encoded: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        self.0.decode_into(&encoded.data, out).map(drop)
    }
}
