//! How fast this computer is now.
//!
//! A computer that shares its host, or that grows hot, changes its speed by a tenth within minutes, and with it everything that takes
//! CPU time. So beside the costs a calibration keeps what one fixed piece of work took meanwhile, decoding its own images on all
//! threads; a prediction for a run that follows at once does that work again, in a third of a second, and scales every core's speed by
//! the ratio. It is one number for the computer, not one for a loader's settings.

use std::path::Path;

use super::{CalibrateError, Cores, corpus::Corpus, median, rounds::decoding_ns};
use crate::{codec::Decoder, model::MachineModel};

/// Passes of a probe; their median counts.
const PASSES: usize = 5;

/// Speed of this computer now, relative to when `machine` was measured: 0.9 when everything takes a ninth longer. `None` when the model
/// does not say what the probe took. `folder` is where images are kept, and `decoder` what the model was measured with.
///
/// # Errors
///
/// When the images cannot be written or read, or the loader cannot run.
pub fn speed_now(machine: &MachineModel, folder: &Path, decoder: &Decoder) -> Result<Option<f64>, CalibrateError> {
    let Some(then) = &machine.cpu.probe else { return Ok(None) };
    let now_ns = decoding_now_ns(folder, decoder, Cores::of_this_computer().threads)?;
    Ok((now_ns > 0.0).then(|| then.value.base() / now_ns))
}

/// CPU time of decoding the images once, all threads together \[ns\].
pub(super) fn decoding_now_ns(folder: &Path, decoder: &Decoder, threads: usize) -> Result<f64, CalibrateError> {
    let corpus = Corpus::make(folder, decoder)?;
    // The first brings the images back into the page cache and the processor to its speed.
    corpus.pass(threads)?;
    let passes: Result<Vec<f64>, CalibrateError> =
        (0..PASSES).map(|_| corpus.pass(threads).map(|pass| decoding_ns(&pass))).collect();
    Ok(median(passes?))
}
