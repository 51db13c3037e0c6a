//! A made-up photograph, row by row, in Y, Cb and Cr.
//!
//! Brightness is a sum of smooth noises, each of half the grain of the one before. The coarse ones make light and shade. The fine
//! ones are weighted by a coarse one, the *focus*, so that some parts of the picture are sharp and others blurred. Shapes with hard edges lie
//! over it, and every pixel has some noise of its own. Colour is two coarse noises and the shapes' own colours.
//!
//! All is done in integers. Noise at a point between the points of a grid is interpolated with the smooth weights 3t² − 2t³.

use jpeg_encoder::{ImageBuffer, JpegColorType};

use super::Spec;
use crate::draw::{Block, Purpose, below, draw};

/// A grid of random values from −128 to 127, smoothly interpolated.
struct Noise {
    /// Logarithm of the grid's spacing \[px\].
    shift: u32,
    columns: usize,
    values: Vec<i8>,
    /// From 0 to 256, for each place within a cell.
    smooth: Vec<i32>,
    /// How much a value counts [1/256 level].
    weight: i32,
}

impl Noise {
    fn new(random: &mut Random, width: usize, height: usize, shift: u32, weight: i32) -> Noise {
        let columns = (width >> shift) + 2;
        let rows = (height >> shift) + 2;
        let mut values = vec![0i8; columns * rows];
        for chunk in values.chunks_mut(8) {
            let word = random.next();
            for (value, byte) in chunk.iter_mut().zip(word.to_le_bytes()) {
                *value = byte as i8;
            }
        }
        let smooth =
            (0..1i64 << shift).map(|i| i << (16 - shift)).map(|t| ((t * t * (3 * 65536 - 2 * t)) >> 40) as i32).collect();
        Noise { shift, columns, values, smooth, weight }
    }

    /// Adds row `y` to `sums`, in 1/256 of a level.
    fn add_row(&self, y: usize, sums: &mut [i32]) {
        let cell = 1usize << self.shift;
        let top = &self.values[(y >> self.shift) * self.columns..][..self.columns];
        let bottom = &self.values[((y >> self.shift) + 1) * self.columns..][..self.columns];
        let down = self.smooth[y & (cell - 1)];
        let at = |column: usize| {
            let (a, b) = (i32::from(top[column]), i32::from(bottom[column]));
            ((a * 256 + (b - a) * down) * self.weight) >> 8
        };
        let mut left = at(0);
        for (column, span) in sums.chunks_mut(cell).enumerate() {
            let right = at(column + 1);
            let step = right - left;
            for (sum, smooth) in span.iter_mut().zip(&self.smooth) {
                // Wrapping, though nothing overflows, so that the loop becomes vector code.
                *sum = sum.wrapping_add(left).wrapping_add(step.wrapping_mul(*smooth) >> 8);
            }
            left = right;
        }
    }
}

/// A part of the picture with a hard edge.
struct Shape {
    kind: ShapeKind,
    /// Centre \[px\].
    x: i64,
    y: i64,
    /// Half of its size \[px\].
    half_width: i64,
    half_height: i64,
    /// What is added to Y, Cb and Cr.
    colour: [i32; 3],
}

enum ShapeKind {
    Ellipse,
    /// A parallelogram whose sides lean by so many 1/256 px a row.
    Slanted(i64),
}

impl Shape {
    fn new(random: &mut Random, width: usize, height: usize) -> Shape {
        let slant = random.below(512) as i64 - 256;
        let kind = if random.below(2) == 0 { ShapeKind::Ellipse } else { ShapeKind::Slanted(slant) };
        let mut colour = || random.below(97) as i32 - 48;
        let colour = [colour(), colour() / 3, colour() / 3];
        Shape {
            kind,
            x: random.below(width as u64) as i64,
            y: random.below(height as u64) as i64,
            half_width: 2 + random.below(width as u64 / 4 + 1) as i64,
            half_height: 2 + random.below(height as u64 / 3 + 1) as i64,
            colour,
        }
    }

    /// The columns it covers in row `y`.
    fn span(&self, y: usize, width: usize) -> std::ops::Range<usize> {
        let dy = y as i64 - self.y;
        if dy.abs() >= self.half_height {
            return 0..0;
        }
        let (centre, half) = match self.kind {
            ShapeKind::Ellipse => {
                let share = (self.half_height * self.half_height - dy * dy) as u64;
                (self.x, share.isqrt() as i64 * self.half_width / self.half_height)
            }
            ShapeKind::Slanted(slant) => (self.x + ((dy * slant) >> 8), self.half_width),
        };
        let clamp = |x: i64| x.clamp(0, width as i64) as usize;
        clamp(centre - half)..clamp(centre + half)
    }
}

/// Random numbers in sequence, for those of one image: the finalizer of SplitMix64 over a counter that starts at a keyed draw.
struct Random(u64);

impl Random {
    fn new(block: &Block) -> Random {
        Random(block.word(0))
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        below(self.next(), n)
    }
}

/// A picture that is computed as the encoder asks for its rows.
pub(super) struct Scene {
    spec: Spec,
    coarse: Vec<Noise>,
    fine: Vec<Noise>,
    focus: Noise,
    colour: [Noise; 2],
    shapes: Vec<Shape>,
    /// Y, Cb and Cr of the whole picture, on average.
    base: [i32; 3],
    /// Standard deviation of the sensor noise in brightness, about [1/256 level]. That of colour is a third.
    grain: i32,
}

impl Scene {
    pub(super) fn new(spec: &Spec) -> Scene {
        let random = &mut Random::new(&draw(spec.seed, Purpose::SYNTH, spec.index, 1));
        let (width, height) = (spec.width as usize, spec.height as usize);
        let detail = spec.detail as i32;
        let base = [104 + random.below(49) as i32, 116 + random.below(25) as i32, 116 + random.below(25) as i32];
        let mut noise = |shift, weight| Noise::new(random, width, height, shift, weight);
        let coarse = vec![noise(8, 100), noise(7, 60), noise(6, 36), noise(5, 24)];
        let fine = [(4, 34), (3, 38), (2, 40), (1, 40)].map(|(shift, weight)| noise(shift, (weight * detail) >> 8)).into();
        let focus = noise(7, 256);
        let colour = [noise(7, 34), noise(6, 30)];
        let shapes = (0..4 + random.below(8)).map(|_| Shape::new(random, width, height)).collect();
        // Pictures with more detail tend to have more noise, but not in proportion.
        let grain = 256 + detail * (1100 + random.below(1100) as i32) / 256;
        Scene { spec: *spec, coarse, fine, focus, colour, shapes, base, grain }
    }

    fn row(&self, y: usize, planes: [&mut Vec<u8>; 3]) {
        let width = self.spec.width as usize;
        let mut sums = [(); 5].map(|()| vec![0i32; width]);
        let [light, texture, focus, blue, red] = &mut sums;
        self.coarse.iter().for_each(|noise| noise.add_row(y, light));
        self.fine.iter().for_each(|noise| noise.add_row(y, texture));
        self.focus.add_row(y, focus);
        self.colour[0].add_row(y, blue);
        self.colour[1].add_row(y, red);
        for shape in &self.shapes {
            let span = shape.span(y, width);
            for (sums, colour) in [&mut *light, &mut *blue, &mut *red].into_iter().zip(shape.colour) {
                sums[span.clone()].iter_mut().for_each(|sum| *sum += colour << 8);
            }
        }
        let mut random = Random::new(&draw(self.spec.seed, Purpose::SYNTH, self.spec.index, 2 + y as u64));
        let [luma, cb, cr] = planes;
        let level = |sum: i32, base: i32| (sum >> 8).wrapping_add(base).clamp(0, 255) as u8;
        let grain = self.grain;
        let noise = |bytes: i32, mean: i32, shift: u32| bytes.wrapping_sub(mean).wrapping_mul(grain) >> shift;
        let words: Vec<[i32; 8]> = (0..width).map(|_| random.next().to_le_bytes().map(i32::from)).collect();
        // The sum of four random bytes is near enough to a normal deviate; its standard deviation is 148, that of two is 104.
        luma.extend(words.iter().zip(&*light).zip(&*texture).zip(&*focus).map(|(((bytes, light), texture), focus)| {
            // From nearly flat to twice the ordinary detail.
            let sharpness = (focus >> 7).wrapping_add(160).clamp(12, 512);
            let grain = noise(bytes[0] + bytes[1] + bytes[2] + bytes[3], 510, 7);
            level(light.wrapping_add(texture.wrapping_mul(sharpness) >> 8).wrapping_add(grain), self.base[0])
        }));
        // Sensors see colour with less noise once it has been filtered.
        for (plane, sums, byte, base) in [(cb, blue, 4, self.base[1]), (cr, red, 6, self.base[2])] {
            let noise = |bytes: &[i32; 8]| noise(bytes[byte] + bytes[byte + 1], 255, 8);
            plane.extend(words.iter().zip(sums).map(|(bytes, sum)| level(sum.wrapping_add(noise(bytes)), base)));
        }
    }
}

impl ImageBuffer for Scene {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        JpegColorType::Ycbcr
    }

    fn width(&self) -> u16 {
        self.spec.width as u16
    }

    fn height(&self) -> u16 {
        self.spec.height as u16
    }

    fn fill_buffers(&self, y: u16, buffers: &mut [Vec<u8>; 4]) {
        let [luma, cb, cr, _] = buffers;
        self.row(usize::from(y), [luma, cb, cr]);
    }
}
