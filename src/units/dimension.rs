//! What is measured, and the units it is written in.

use super::Quantity;

/// One unit of a dimension.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// How it is displayed.
    pub symbol: &'static str,
    /// Other spellings that are read.
    pub aliases: &'static [&'static str],
    /// One of it, in the dimension's base unit.
    pub in_base: f64,
}

/// A kind of quantity. Its base unit has `in_base == 1`.
pub trait Dimension: Copy + std::fmt::Debug + 'static {
    /// What an error calls it, with its article: "a duration".
    const WHAT: &'static str;
    /// A well-formed value, shown in errors.
    const EXAMPLE: &'static str;
    /// The most that may be written, in the base unit.
    const MOST: f64;
    /// Its units, smallest first; a value without a unit of its own is displayed in the largest that leaves it at 1 or above.
    const UNITS: &'static [Unit];
}

macro_rules! dimension {
    ($(#[$doc:meta])* $dimension:ident as $quantity:ident, $what:literal, $example:literal, up to $most:expr,
     $($symbol:literal $(or $alias:literal)* = $in_base:expr),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[expect(non_camel_case_types, reason = "never written by hand: the alias is the name")]
        pub enum $dimension {}

        impl Dimension for $dimension {
            const WHAT: &'static str = $what;
            const EXAMPLE: &'static str = $example;
            const MOST: f64 = $most;
            const UNITS: &'static [Unit] =
                &[$(Unit { symbol: $symbol, aliases: &[$($alias),*], in_base: $in_base }),+];
        }

        $(#[$doc])*
        pub type $quantity = Quantity<$dimension>;
    };
}

const KI: f64 = 1024.0;
const MI: f64 = KI * KI;
const GI: f64 = MI * KI;
const TI: f64 = GI * KI;

dimension!(
    /// A length of time, of a year at most: two hundred of them in a row still fit the simulated clock. Base unit the nanosecond, of which
    /// it may hold fractions.
    by_time as Duration, "a duration with its unit", "50 ms", up to 365.0 * 24.0 * 3600e9,
    "ns" = 1.0, "µs" or "us" or "μs" = 1e3, "ms" = 1e6, "s" = 1e9, "min" = 60e9, "h" = 3600e9,
);

dimension!(
    /// An amount of memory or data; base unit the byte.
    by_size as Size, "a size with its unit", "64 KiB", up to f64::MAX,
    "B" = 1.0, "kB" = 1e3, "KiB" = KI, "MB" = 1e6, "MiB" = MI, "GB" = 1e9, "GiB" = GI, "TB" = 1e12, "TiB" = TI,
);

dimension!(
    /// Data over time; base unit bytes per second. A small `b` means bits.
    by_bytes_per_second as ByteRate, "a data rate with its unit", "12 GB/s", up to f64::MAX,
    "b/s" = 0.125, "B/s" = 1.0, "kb/s" = 125.0, "kB/s" = 1e3, "KiB/s" = KI, "Mb/s" = 125e3, "MB/s" = 1e6, "MiB/s" = MI,
    "Gb/s" = 125e6, "GB/s" = 1e9, "GiB/s" = GI, "Tb/s" = 125e9, "TB/s" = 1e12,
);

dimension!(
    /// Samples over time; base unit samples per second.
    by_samples_per_second as SampleRate, "a rate of samples", "1300 samples/s", up to f64::MAX,
    "samples/s" or "sample/s" or "images/s" or "img/s" = 1.0,
);

dimension!(
    /// Requests over time; base unit requests per second.
    by_requests_per_second as RequestRate, "a rate of requests", "5500 requests/s", up to f64::MAX,
    "requests/s" or "request/s" or "GET/s" = 1.0,
);

dimension!(
    /// A part of a whole, in percent; base unit 1 (so that `10 %` is 0.1).
    percent as Fraction, "a percentage", "10 %", up to f64::MAX,
    "%" = 0.01,
);

dimension!(
    /// Time per byte; base unit nanoseconds per byte.
    by_byte as ByteCost, "a time per byte", "0.2 ns/B", up to f64::MAX,
    "ps/B" = 1e-3, "ns/B" = 1.0, "µs/B" or "us/B" = 1e3,
);

dimension!(
    /// Time per pixel; base unit nanoseconds per pixel.
    by_pixel as PixelCost, "a time per pixel", "3.5 ns/px", up to f64::MAX,
    "ps/px" = 1e-3, "ns/px" = 1.0, "µs/px" or "us/px" = 1e3,
);

/// Rounds to the nearest integer, halves away from zero; values are never negative and saturate at the top.
fn rounded(x: f64) -> u64 {
    x.round() as u64
}

impl Duration {
    /// Nanoseconds, rounded to the nearest.
    pub fn as_ns(self) -> u64 {
        rounded(self.base())
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.base() / 1e9
    }

    /// The standard library's duration, to the nanosecond.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.as_ns())
    }
}

impl Size {
    /// Bytes, rounded to the nearest.
    pub fn as_bytes(self) -> u64 {
        rounded(self.base())
    }

    /// A number of bytes, written in KiB, MiB and so on when it is a whole number of them; exact below 2⁵³.
    pub fn from_bytes(bytes: u64) -> Size {
        let whole = [("TiB", TI), ("GiB", GI), ("MiB", MI), ("KiB", KI)];
        let unit = whole.iter().find(|(_, n)| bytes >= *n as u64 && bytes.is_multiple_of(*n as u64));
        match unit {
            Some((symbol, n)) => Size::new(bytes as f64 / n, symbol),
            None => Some(Size::of_base(bytes as f64)).filter(|s| s.as_bytes() == bytes).unwrap_or(Size::new(bytes as f64, "B")),
        }
    }
}

impl ByteRate {
    /// Bytes per second, rounded to the nearest.
    pub fn as_bytes_per_s(self) -> u64 {
        rounded(self.base())
    }
}

impl SampleRate {
    /// Samples per second.
    pub fn per_s(self) -> f64 {
        self.base()
    }
}

impl RequestRate {
    /// Requests per second.
    pub fn per_s(self) -> f64 {
        self.base()
    }
}

impl Fraction {
    /// Millionths, rounded to the nearest.
    pub fn as_ppm(self) -> u64 {
        rounded(self.base() * 1e6)
    }
}

impl ByteCost {
    /// Picoseconds per byte, rounded to the nearest: what integer arithmetic computes with.
    pub fn as_ps(self) -> u64 {
        rounded(self.base() * 1e3)
    }

    /// Femtoseconds per byte, rounded to the nearest, for what takes less than a picosecond.
    pub fn as_fs(self) -> u64 {
        rounded(self.base() * 1e6)
    }
}

impl PixelCost {
    /// Picoseconds per pixel, rounded to the nearest.
    pub fn as_ps(self) -> u64 {
        rounded(self.base() * 1e3)
    }
}
