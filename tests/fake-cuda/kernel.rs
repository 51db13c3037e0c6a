//! Kernels: what the driver reads of a PTX module, and what its kernels do.

use std::{ffi::c_void, sync::LazyLock, time::Duration};

use crate::state::{Code, INVALID_VALUE, Span};

/// Bytes a second that normalizing reads, when `FAKE_CUDA_NORMALIZE_BYTES_PER_S` says so: then it takes its time and none of the processor's,
/// as on a GPU, and makes nothing.
static NORMALIZE_BYTES_PER_S: LazyLock<Option<u64>> = LazyLock::new(|| {
    std::env::var("FAKE_CUDA_NORMALIZE_BYTES_PER_S").ok().and_then(|rate| rate.parse().ok()).filter(|rate| *rate > 0)
});

/// An entry of a module: its name and the types of its parameters.
pub struct Function {
    name: String,
    parameters: Vec<String>,
}

/// Every `.entry` of a PTX text.
pub fn functions(ptx: &str) -> Vec<Function> {
    ptx.split(".entry ")
        .skip(1)
        .filter_map(|rest| {
            let (name, rest) = rest.split_once('(')?;
            let (list, _) = rest.split_once(')')?;
            let parameter = |text: &str| text.split_whitespace().nth(1).map(str::to_owned);
            Some(Function { name: name.trim().to_owned(), parameters: list.split(',').filter_map(parameter).collect() })
        })
        .collect()
}

impl Function {
    pub fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// A launch with these parameters.
    pub unsafe fn launch(&self, parameters: *mut *mut c_void) -> Result<Kernel, Code> {
        let mut values = Vec::new();
        for (at, kind) in self.parameters.iter().enumerate() {
            let value = unsafe { *parameters.add(at) };
            values.push(match kind.as_str() {
                ".u64" => unsafe { value.cast::<u64>().read_unaligned() },
                ".u32" => u64::from(unsafe { value.cast::<u32>().read_unaligned() }),
                ".f32" => u64::from(unsafe { value.cast::<f32>().read_unaligned() }.to_bits()),
                _ => return Err(INVALID_VALUE),
            });
        }
        match (self.name.as_str(), &values[..]) {
            ("towtank_spin", [data, bytes, nanoseconds]) => {
                Ok(Kernel::Spin { reads: (*data, data + bytes), time: Duration::from_nanos(*nanoseconds) })
            }
            ("towtank_normalize", [from, to, pixels, images, factors @ ..]) if factors.len() == 6 => Ok(Kernel::Normalize {
                from: *from,
                to: *to,
                pixels: *pixels,
                images: *images,
                factors: std::array::from_fn(|at| f32::from_bits(factors[at] as u32)),
            }),
            _ => Err(INVALID_VALUE),
        }
    }
}

pub enum Kernel {
    /// Keeps the GPU busy.
    Spin { reads: Span, time: Duration },
    /// u8 NHWC to f16 NCHW, of three channels each with a factor and an offset.
    Normalize { from: u64, to: u64, pixels: u64, images: u64, factors: [f32; 6] },
}

impl Kernel {
    pub fn reads(&self) -> Span {
        match self {
            Kernel::Spin { reads, .. } => *reads,
            Kernel::Normalize { from, pixels, images, .. } => (*from, from + pixels * images * 3),
        }
    }

    pub fn writes(&self) -> Span {
        match self {
            Kernel::Spin { .. } => (0, 0),
            Kernel::Normalize { to, pixels, images, .. } => (*to, to + pixels * images * 3 * 2),
        }
    }

    pub fn time(&self) -> Duration {
        match self {
            Kernel::Spin { time, .. } => *time,
            Kernel::Normalize { pixels, images, .. } => NORMALIZE_BYTES_PER_S
                .map_or(Duration::ZERO, |rate| Duration::from_secs_f64((pixels * images * 3) as f64 / rate as f64)),
        }
    }

    pub fn run(&self) {
        let Kernel::Normalize { from, to, pixels, images, factors } = self else { return };
        if NORMALIZE_BYTES_PER_S.is_some() {
            return;
        }
        for image in 0..*images {
            for pixel in 0..*pixels {
                for channel in 0..3 {
                    let value = unsafe { *((from + (image * pixels + pixel) * 3 + channel) as *const u8) };
                    let value = f32::from(value) * factors[channel as usize] + factors[3 + channel as usize];
                    let place = to + ((image * 3 + channel) * pixels + pixel) * 2;
                    unsafe { (place as *mut u16).write_unaligned(half(value)) };
                }
            }
        }
    }
}

/// A number as IEEE 754 binary16, rounded to even.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    if magnitude.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    if magnitude < 6.103_515_6e-5 {
        return sign | (magnitude * 16_777_216.0).round_ties_even() as u16;
    }
    let exponent = (magnitude.to_bits() >> 23) as i32 - 127;
    let steps = (f64::from(magnitude) / 2_f64.powi(exponent - 10)).round_ties_even() as u32;
    sign | ((exponent + 15) as u32 * 1024 + steps - 1024) as u16
}
