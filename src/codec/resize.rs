//! Antialiased bilinear resizing of RGB: a triangle filter as wide as the shrinking asks for.
//!
//! Decoding writes a whole frame; this reads it once, and it is a tenth of the whole cost. So it is made for one thing, RGB of 8
//! bits, and takes no memory that it does not keep:
//!
//! - Output rows are made four at a time, from the few source rows that they need, which are then in the first-level cache.
//! - The *vertical* pass weighs source rows into one row of 16-bit sums, with 8 bits behind the point.
//! - It is stored so that pixel x of the four rows lies side by side, as 4 × RGB and one unused lane each: 16 lanes of 16 bits. The
//!   *horizontal* pass is then a weighted sum of such groups, and one vector instruction works for all four rows.
//! - Both passes are a product's upper half (`pmulhuw`) and a sum. Weights are 16 bits behind the point and add up to 1 exactly, so
//!   that sums cannot overflow and a flat picture stays flat.
//!
//! The weights are those of Pillow's `precompute_coeffs`. Pillow rounds to 8 bits between its passes and goes horizontally first;
//! here the sums keep 8 more bits. So results differ from Pillow's by 1 of 255 at most.

mod axis;
mod kernel;

use axis::Axis;

/// The part of the source that becomes the whole result \[px\]; fractions of pixels are meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Tables and rows that are kept from image to image.
#[derive(Default)]
pub(crate) struct Resizer {
    /// Weights of the sizes that came last, the latest first.
    axes: Vec<Axis>,
    rows: kernel::Rows,
}

/// Sizes whose weights are kept. Photographs come in few.
const AXES_MAX: usize = 8;

impl Resizer {
    /// Bytes held \[B\].
    pub(crate) fn bytes(&self) -> usize {
        self.axes.iter().map(Axis::bytes).sum::<usize>() + self.rows.bytes()
    }

    /// Resizes `window` of `source`, RGB of `source_size` (width, height), to fill `out`, RGB of `out_size`.
    pub(crate) fn resize(
        &mut self,
        source: &[u8],
        source_size: (u32, u32),
        window: Window,
        out: &mut [u8],
        out_size: (u32, u32),
    ) {
        assert_eq!(source.len(), source_size.0 as usize * source_size.1 as usize * 3, "the frame has another size");
        assert_eq!(out.len(), out_size.0 as usize * out_size.1 as usize * 3, "the slot has another size");
        let across = axis::Key::new(source_size.0, window.left, window.width, out_size.0);
        let down = axis::Key::new(source_size.1, window.top, window.height, out_size.1);
        self.bring(across);
        self.bring(down);
        // What was brought last is in front, and before it what was brought first, unless they are the same.
        let [down, across] = [0, usize::from(across != down)].map(|place| &self.axes[place]);
        let job = kernel::Job { source, width: source_size.0 as usize, across, down };
        kernel::run(&job, &mut self.rows, out);
    }

    /// Moves the weights of `key` to the front, computed unless they are known.
    fn bring(&mut self, key: axis::Key) {
        match self.axes.iter().position(|axis| axis.key() == key) {
            Some(place) => self.axes[..=place].rotate_right(1),
            None if self.axes.len() < AXES_MAX => self.axes.insert(0, Axis::new(key)),
            None => {
                self.axes.rotate_right(1);
                self.axes[0].compute(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by definition: in floating point, horizontally and vertically at once, rounded once.
    fn by_definition(source: &[u8], size: (u32, u32), window: Window, out_size: (u32, u32)) -> Vec<u8> {
        let weights = |length: u32, start: f64, extent: f64, count: u32, i: u32| -> Vec<f64> {
            let scale = extent / f64::from(count);
            let support = scale.max(1.0);
            let centre = start + (f64::from(i) + 0.5) * scale;
            let raw: Vec<f64> = (0..length).map(|x| (1.0 - ((f64::from(x) + 0.5 - centre) / support).abs()).max(0.0)).collect();
            let sum: f64 = raw.iter().sum();
            raw.iter().map(|w| w / sum).collect()
        };
        let mut out = Vec::new();
        for y in 0..out_size.1 {
            let down = weights(size.1, window.top, window.height, out_size.1, y);
            for x in 0..out_size.0 {
                let across = weights(size.0, window.left, window.width, out_size.0, x);
                for channel in 0..3 {
                    let mut sum = 0.0;
                    for (sy, wy) in down.iter().enumerate().filter(|(_, w)| **w > 0.0) {
                        for (sx, wx) in across.iter().enumerate().filter(|(_, w)| **w > 0.0) {
                            sum += wy * wx * f64::from(source[(sy * size.0 as usize + sx) * 3 + channel]);
                        }
                    }
                    out.push((sum + 0.5) as u8);
                }
            }
        }
        out
    }

    fn noise(size: (u32, u32)) -> Vec<u8> {
        let luck = |i: u32| crate::draw::draw(1, crate::draw::Purpose::SYNTH, u64::from(i), 0).word(0);
        (0..size.0 * size.1 * 3).map(|i| if luck(i / 3000) % 3 == 0 { 255 } else { luck(i) as u8 }).collect()
    }

    fn whole(size: (u32, u32)) -> Window {
        Window { left: 0.0, top: 0.0, width: size.0.into(), height: size.1.into() }
    }

    #[test]
    fn results_are_those_of_the_definition() {
        let mut resizer = Resizer::default();
        let sizes = [
            ((50, 37), (22, 22)),
            ((37, 50), (22, 31)),
            ((7, 5), (20, 20)),
            ((1, 1), (4, 3)),
            ((1, 90), (8, 9)),
            ((90, 1), (9, 8)),
        ];
        let more = [
            ((33, 21), (33, 21)),
            ((33, 21), (33, 10)),
            ((130, 90), (5, 3)),
            ((64, 64), (1, 1)),
            ((2, 3), (3, 2)),
            ((31, 40), (30, 41)),
        ];
        for (size, out_size) in sizes.into_iter().chain(more) {
            let source = noise(size);
            let mut out = vec![1; (out_size.0 * out_size.1 * 3) as usize];
            resizer.resize(&source, size, whole(size), &mut out, out_size);
            let expected = by_definition(&source, size, whole(size), out_size);
            let worst = out.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(worst <= Some(1), "{size:?} to {out_size:?}: off by {worst:?}");
        }
    }

    #[test]
    fn plain_rust_gives_the_same_bytes_as_vectors() {
        for (size, out_size) in [((100, 75), (44, 45)), ((30, 40), (33, 9)), ((5, 4), (7, 6)), ((1, 1), (1, 1))] {
            let source = noise(size);
            let mut out = vec![0; (out_size.0 * out_size.1 * 3) as usize];
            Resizer::default().resize(&source, size, whole(size), &mut out, out_size);
            let axis = |length: u32, count| Axis::new(axis::Key::new(length, 0.0, length.into(), count));
            let (across, down) = (axis(size.0, out_size.0), axis(size.1, out_size.1));
            let job = kernel::Job { source: &source, width: size.0 as usize, across: &across, down: &down };
            let mut plain = vec![0; out.len()];
            kernel::run_portable(&job, &mut kernel::Rows::default(), &mut plain);
            assert_eq!(plain, out, "{size:?} to {out_size:?}");
        }
    }

    #[test]
    fn a_window_is_what_lies_in_it_with_its_neighbours() {
        let (size, out_size) = ((80, 60), (24, 20));
        let source = noise(size);
        let window = Window { left: 11.25, top: 7.5, width: 41.5, height: 33.25 };
        let mut out = vec![0; 24 * 20 * 3];
        Resizer::default().resize(&source, size, window, &mut out, out_size);
        let expected = by_definition(&source, size, window, out_size);
        assert!(out.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 1));
    }

    #[test]
    fn the_same_size_is_a_copy_and_flat_stays_flat() {
        let mut resizer = Resizer::default();
        let source = noise((40, 30));
        let mut out = vec![0; source.len()];
        resizer.resize(&source, (40, 30), whole((40, 30)), &mut out, (40, 30));
        assert_eq!(out, source);
        for level in [0, 1, 77, 254, 255] {
            let mut out = vec![9; 17 * 13 * 3];
            resizer.resize(&[level; 40 * 30 * 3], (40, 30), whole((40, 30)), &mut out, (17, 13));
            assert!(out.iter().all(|&b| b == level), "level {level}");
        }
    }

    #[test]
    fn many_sizes_share_a_few_tables() {
        let mut resizer = Resizer::default();
        let mut out = vec![0; 8 * 8 * 3];
        let mut sized = |width: u32| {
            let source = noise((width, 9));
            resizer.resize(&source, (width, 9), whole((width, 9)), &mut out, (8, 8));
            out.clone()
        };
        let first: Vec<_> = (10..40).map(&mut sized).collect();
        let second: Vec<_> = (10..40).map(&mut sized).collect();
        assert_eq!(first, second);
        assert!(resizer.bytes() < 100_000, "{} bytes", resizer.bytes());
    }
}
