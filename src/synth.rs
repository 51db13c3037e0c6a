//! Photo-like JPEGs, made up: the data set for those who have none at hand.
//!
//! An image is a function of `(seed, index)` alone, computed in integers, so it has the same bytes on every computer. Sizes,
//! qualities and bytes are spread as ImageNet's training images are (mode 500 × 375, mean 470 × 390 pixels and 110 kB, the logarithm of
//! the bytes with a standard deviation of 0.55), because decoding costs by the pixel and by the byte. The content has what makes
//! photographs cost what they cost: large gradients, detail at every scale that comes and goes over the picture, hard edges, sensor
//! noise.
//!
//! ```
//! use towtank::synth::{Spec, jpeg};
//!
//! let spec = Spec::plan(7, 0);
//! assert_eq!(jpeg(&spec), jpeg(&Spec::plan(7, 0)));
//! ```

use crate::draw::{Block, Purpose, below, draw};

mod folder;
mod scene;

pub(crate) use folder::keep;
pub use folder::{Summary, write_folder};

/// The version of what a seed means. Images of two versions differ.
pub const VERSION: u32 = 1;

/// How finely a JPEG stores colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Subsampling {
    /// One pair of colour samples for every four pixels: 4:2:0.
    #[serde(rename = "4:2:0")]
    Quarter,
    /// One pair of colour samples for every two pixels: 4:2:2.
    #[serde(rename = "4:2:2")]
    Half,
    /// One pair of colour samples for every pixel: 4:4:4.
    #[serde(rename = "4:4:4")]
    Full,
}

/// What an image will be, before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// Seed of the data set.
    pub seed: u64,
    /// Index of the image in it.
    pub index: u64,
    /// Width \[px\].
    pub width: u32,
    /// Height \[px\].
    pub height: u32,
    /// JPEG quality, 1 to 100.
    pub quality: u8,
    /// How finely colour is stored.
    pub subsampling: Subsampling,
    /// How much fine detail and noise the picture has, 256 being an ordinary one's. The bytes grow with it.
    pub detail: u32,
}

impl Spec {
    /// The image `index` of the data set `seed`.
    pub fn plan(seed: u64, index: u64) -> Spec {
        let luck = draw(seed, Purpose::SYNTH, index, 0);
        let (width, height) = size(&luck);
        let subsampling = match below(luck.word(4), 10) {
            0 => Subsampling::Full,
            1 => Subsampling::Half,
            _ => Subsampling::Quarter,
        };
        let quality = 90 + below(luck.word(5), 7) as u8;
        Spec { seed, index, width, height, quality, subsampling, detail: detail(luck.word(6)) }
    }

    /// Its pixels \[px\].
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// A number from `low` to `high`.
fn between(word: u64, low: u32, high: u32) -> u32 {
    low + below(word, u64::from(high - low) + 1) as u32
}

/// Sizes as ImageNet's: half are 500 wide, a fifth 500 high, a few much smaller or larger.
fn size(luck: &Block) -> (u32, u32) {
    const SHORT: [u32; 6] = [375, 333, 375, 334, 375, 332];
    let short = SHORT[below(luck.word(1), 6) as usize];
    let share = |percent_low: u32, percent_high: u32| between(luck.word(2), percent_low, percent_high);
    match below(luck.word(0), 1000) {
        0..530 => (500, short),
        530..730 => (short, 500),
        730..830 => {
            let width = between(luck.word(3), 180, 400);
            (width, (width * share(65, 135) / 100).max(96))
        }
        830..977 => {
            let width = between(luck.word(3), 400, 720);
            (width, width * share(60, 85) / 100)
        }
        977..996 => {
            let width = between(luck.word(3), 800, 1300);
            (width, width * share(62, 80) / 100)
        }
        _ => {
            let width = between(luck.word(3), 1504, 2100);
            (width, width * share(65, 78) / 100)
        }
    }
}

/// Quantiles of a lognormal distribution of median 256 and σ 0.6, at 1/32, 3/32, … 31/32.
const DETAIL: [u32; 16] = [84, 115, 138, 158, 177, 197, 217, 238, 262, 289, 320, 358, 407, 474, 578, 806];

fn detail(word: u64) -> u32 {
    // Between two quantiles the value is linear.
    let place = below(word, 15 * 64) as usize;
    let (low, high) = (DETAIL[place / 64], DETAIL[place / 64 + 1]);
    low + (high - low) * (place % 64) as u32 / 64
}

/// Images of every quality at every size, `repeats` of each: a corpus from which the cost of a byte and the cost of a pixel can be told
/// apart. Indices count up from 0.
pub fn factorial(seed: u64, qualities: &[u8], sizes: &[(u32, u32)], repeats: u32) -> Vec<Spec> {
    let cells = sizes.iter().flat_map(|&size| qualities.iter().map(move |&quality| (size, quality)));
    cells
        .flat_map(|cell| (0..repeats).map(move |_| cell))
        .enumerate()
        .map(|(index, ((width, height), quality))| {
            let index = index as u64;
            // Detail is that of an ordinary picture, give or take a fifth.
            let detail = between(draw(seed, Purpose::SYNTH, index, 0).word(6), 205, 307);
            Spec { seed, index, width, height, quality, subsampling: Subsampling::Quarter, detail }
        })
        .collect()
}

/// Makes the image. A function of `spec` alone.
///
/// # Panics
///
/// When a side is 0 or above 65 535, or the quality is not 1 to 100.
pub fn jpeg(spec: &Spec) -> Vec<u8> {
    let side = 1..=u32::from(u16::MAX);
    assert!(side.contains(&spec.width) && side.contains(&spec.height), "a JPEG of {} × {} pixels", spec.width, spec.height);
    assert!((1..=100).contains(&spec.quality), "JPEG quality {}", spec.quality);
    let mut bytes = Vec::with_capacity(spec.pixels() as usize);
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, spec.quality);
    encoder.set_sampling_factor(match spec.subsampling {
        Subsampling::Quarter => jpeg_encoder::SamplingFactor::R_4_2_0,
        Subsampling::Half => jpeg_encoder::SamplingFactor::R_4_2_2,
        Subsampling::Full => jpeg_encoder::SamplingFactor::R_4_4_4,
    });
    encoder.encode_image(scene::Scene::new(spec)).expect("writing to memory succeeds, and the sides fit");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{self, Choice, Decoder, Target};

    #[test]
    fn the_same_seed_and_index_give_the_same_image() {
        let spec = Spec::plan(3, 5);
        assert_eq!(spec, Spec::plan(3, 5));
        let bytes = jpeg(&spec);
        assert_eq!(bytes, jpeg(&spec));
        assert_ne!(bytes, jpeg(&Spec { index: 6, ..spec }));
        assert_ne!(bytes, jpeg(&Spec { seed: 4, ..spec }));
    }

    /// These bytes are part of what a seed means, on every computer. Where they must change, [`VERSION`] does.
    #[test]
    fn the_bytes_are_those_of_this_version() {
        let hash =
            |bytes: &[u8]| bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let hashes: Vec<String> = (0..3).map(|index| format!("{:016x}", hash(&jpeg(&Spec::plan(1, index))))).collect();
        assert_eq!((VERSION, hashes.join(" ").as_str()), (1, "0fa406e917a9c8d8 e615b07ea3b151d4 641f9ea89f3857d5"));
    }

    #[test]
    fn an_image_is_what_its_plan_says_and_decodes() {
        let decoder = Decoder::new(Choice::Rust, Target::square(64)).unwrap();
        let mut out = vec![0; decoder.target().bytes()];
        for index in 0..12 {
            let spec = Spec::plan(11, index);
            let bytes = jpeg(&spec);
            let header = codec::probe(&bytes).unwrap();
            assert_eq!((header.width, header.height), (spec.width, spec.height));
            decoder.decode_into(&bytes, &mut out).unwrap();
            let (low, high) = (out.iter().min().unwrap(), out.iter().max().unwrap());
            assert!(high - low > 60, "image {index} has little contrast: {low} to {high}");
        }
    }

    #[test]
    fn sizes_are_spread_as_imagenets() {
        let specs: Vec<Spec> = (0..4000).map(|index| Spec::plan(1, index)).collect();
        let mean = |side: fn(&Spec) -> u32| specs.iter().map(|s| u64::from(side(s))).sum::<u64>() / specs.len() as u64;
        let (width, height) = (mean(|s| s.width), mean(|s| s.height));
        assert!((455..=485).contains(&width) && (375..=400).contains(&height), "mean {width} × {height}");
        let usual = specs.iter().filter(|s| (s.width, s.height) == (500, 375)).count();
        assert!(usual > specs.len() / 5, "{usual} of {} are 500 × 375", specs.len());
    }

    #[test]
    fn bytes_are_spread_as_imagenets() {
        let bytes: Vec<f64> = (0..160).map(|index| jpeg(&Spec::plan(1, index)).len() as f64).collect();
        let count = bytes.len() as f64;
        let mean = bytes.iter().sum::<f64>() / count;
        let logs = bytes.iter().map(|b| b.ln());
        let log_mean = logs.clone().sum::<f64>() / count;
        let sigma = (logs.map(|l| (l - log_mean).powi(2)).sum::<f64>() / count).sqrt();
        assert!((95e3..125e3).contains(&mean), "mean of {mean} bytes");
        assert!((0.45..0.65).contains(&sigma), "the logarithm of the bytes has σ {sigma}");
    }

    #[test]
    fn a_factorial_corpus_tells_bytes_and_pixels_apart() {
        let sizes = [(320, 240), (640, 480)];
        let specs = factorial(9, &[70, 95], &sizes, 2);
        assert_eq!(specs.len(), 8);
        assert_eq!(specs.iter().map(|s| s.index).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        let bytes_of = |quality, size| {
            let of_cell = specs.iter().filter(|s| s.quality == quality && (s.width, s.height) == size);
            of_cell.map(|s| jpeg(s).len()).sum::<usize>()
        };
        for size in sizes {
            assert!(bytes_of(95, size) > 2 * bytes_of(70, size), "quality must move the bytes apart from the pixels");
        }
    }
}
