//! The weights of one direction.

/// What the weights of a direction depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Key {
    length: u32,
    start: f64,
    extent: f64,
    count: u32,
}

impl Key {
    /// `count` results from the part of a line of `length` pixels that begins at `start` and is `extent` long.
    pub(super) fn new(length: u32, start: f64, extent: f64, count: u32) -> Key {
        debug_assert!(length > 0 && count > 0 && extent > 0.0);
        Key { length, start, extent, count }
    }
}

/// For each result along a direction, which source pixels count and how much. All have the same number of weights; some at the end may
/// be 0.
pub(super) struct Axis {
    key: Key,
    taps: usize,
    starts: Vec<u32>,
    /// `taps` for each result, 16 bits behind the point.
    weights: Vec<u16>,
}

impl Axis {
    pub(super) fn new(key: Key) -> Axis {
        let mut axis = Axis { key, taps: 0, starts: Vec::new(), weights: Vec::new() };
        axis.compute(key);
        axis
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn bytes(&self) -> usize {
        self.starts.capacity() * size_of::<u32>() + self.weights.capacity() * size_of::<u16>()
    }

    /// Makes it the weights of `key`, in the memory it has.
    pub(super) fn compute(&mut self, key: Key) {
        let Key { length, start, extent, count } = key;
        let scale = extent / f64::from(count);
        let support = scale.max(1.0);
        // As Pillow rounds: from the centre less the support to the centre plus the support.
        let bounds = |i: u32| {
            let centre = start + (f64::from(i) + 0.5) * scale;
            let first = ((centre - support + 0.5).max(0.0) as u32).min(length - 1);
            let end = ((centre + support + 0.5) as u32).clamp(first + 1, length);
            (centre, first, end)
        };
        let taps = (0..count).map(bounds).map(|(_, first, end)| end - first).max().unwrap_or(1);
        self.key = key;
        self.taps = taps as usize;
        self.starts.clear();
        self.weights.clear();
        for i in 0..count {
            let (centre, first, end) = bounds(i);
            // Where fewer weights than `taps` would reach over the end, the first ones are 0.
            let from = first.min(length - taps);
            self.starts.push(from);
            let weight = |x: u32| {
                if (first..end).contains(&x) { (1.0 - ((f64::from(x) + 0.5 - centre) / support).abs()).max(0.0) } else { 0.0 }
            };
            let sum: f64 = (from..from + taps).map(weight).sum();
            let place = self.weights.len();
            let mut rest = 65536u32;
            for x in from..from + taps {
                // A centre that lies on no pixel's support does not occur: supports are at least 1 wide to each side.
                let fixed = ((weight(x) / sum * 65536.0).round() as u32).min(rest);
                rest -= fixed;
                self.weights.push(fixed.min(65535) as u16);
            }
            // What rounding left goes to the heaviest, so that the sum is 1.
            let heaviest = self.weights[place..].iter_mut().max().expect("there is at least one weight");
            *heaviest = (u32::from(*heaviest) + rest).min(65535) as u16;
        }
    }

    /// How many weights each result has.
    pub(super) fn taps(&self) -> usize {
        self.taps
    }

    /// Results.
    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    /// The first source pixel that counts for result `i`, and the weights from there on.
    #[inline]
    pub(super) fn at(&self, i: usize) -> (usize, &[u16]) {
        (self.starts[i] as usize, &self.weights[i * self.taps..(i + 1) * self.taps])
    }

    /// All of them in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[u16])> {
        self.starts.iter().map(|&start| start as usize).zip(self.weights.chunks_exact(self.taps))
    }

    /// The first source pixel of each result, and all weights one after the other.
    #[inline]
    pub(super) fn parts(&self) -> (&[u32], &[u16]) {
        (&self.starts, &self.weights)
    }

    /// The source pixels that count at all.
    pub(super) fn used(&self) -> std::ops::Range<usize> {
        let first = self.starts.iter().min().map_or(0, |&start| start as usize);
        let last = self.starts.iter().max().map_or(0, |&start| start as usize);
        first..last + self.taps
    }
}
