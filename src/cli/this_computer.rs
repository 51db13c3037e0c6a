//! The model of this computer: measured once, and kept in the user's cache folder.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use towtank::{
    codec::Decoder,
    document::Diagnostic,
    model::{
        self, MachineModel,
        calibrate::{self, CalibrateError, Calibrated, Effort, GpuEffort, calibrate},
    },
    scenario::{Gpus, OBJECT, Scenario},
};

use super::{
    Ending,
    images::{bar, cache_folder},
    output::say,
};

/// The model of this computer as fast as it is now: kept from an earlier calibration for the same decoder and size, or measured now and
/// kept.
pub(super) fn this_computer(scenario: &Scenario, again: bool) -> Result<MachineModel, Ending> {
    let decoder = scenario.decoder()?;
    let machine = calibrated(scenario, again)?;
    let speed = calibrate::speed_now(&machine, &cache_folder()?, &decoder).map_err(|error| Ending::Failed(error.to_string()))?;
    let Some(speed) = speed else { return Ok(machine) };
    let change = (speed - 1.0) * 100.0;
    if change.abs() >= 2.0 {
        let how = if change < 0.0 { "slower" } else { "faster" };
        let by = change.abs();
        say(&format!("note: this computer is {by:.0} % {how} now than when it was calibrated; the prediction counts with that"));
    }
    Ok(MachineModel { cpu: machine.cpu.at_speed(speed), ..machine })
}

/// The model with these GPUs as its device, measured now.
pub(super) fn with_gpus(machine: MachineModel, gpus: Option<&Gpus>) -> Result<MachineModel, Ending> {
    let Some(gpus) = gpus else { return Ok(machine) };
    let found = calibrate::calibrate_gpus(&gpus.devices, GpuEffort::QUICK);
    let found = found.map_err(|error| Ending::Failed(format!("the GPUs cannot be measured: {error}")))?;
    Ok(MachineModel { device: found.device, kernels: found.kernels, ..machine })
}

/// The model as it was calibrated.
pub(super) fn calibrated(scenario: &Scenario, again: bool) -> Result<MachineModel, Ending> {
    let decoder = scenario.decoder()?;
    let file = model::cache_file();
    if let Some((path, kept)) = file.as_deref().filter(|_| !again).and_then(|path| Some((path, kept(path, &decoder)?))) {
        let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        let age = age.map_or_else(String::new, |age| format!(", {} ago", ago(age)));
        say(&format!("note: this computer as calibrated{age}; `--recalibrate` measures it anew"));
        return Ok(kept);
    }
    let machine = measured(&decoder, None, Effort::QUICK)?.machine;
    let machine = file.as_deref().map_or_else(|| machine.clone(), |path| with_known_store(path, machine.clone()));
    if let Some(path) = file {
        match keep(&path, &machine) {
            Ok(()) => say(&format!("this computer is calibrated; its model is kept in `{}`", path.display())),
            Err(error) => say(&format!("note: the model of this computer cannot be kept: {error}")),
        }
    }
    Ok(machine)
}

/// This computer, measured now, on images of its own or on those of a folder.
pub(super) fn measured(decoder: &Decoder, data: Option<&Path>, effort: Effort) -> Result<Calibrated, Ending> {
    let corpus = cache_folder()?;
    let options = calibrate::Options { corpus: &corpus, data, decoder, effort };
    let bar = bar(1, "calibrating this computer");
    let measured = calibrate(&options, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    measured.map_err(|error| match &error {
        CalibrateError::Folder(folder) if data.is_some() => Diagnostic::new(error.to_string()).hint(folder.hint()).into(),
        CalibrateError::TooFew { .. } | CalibrateError::FewImages { .. } => {
            Diagnostic::new(error.to_string()).hint("without `--data`, images made for the purpose are decoded").into()
        }
        _ => Ending::Failed(error.to_string()),
    })
}

/// With the object store that the kept model knows: it does not change with a decoder, nor with a day.
pub(super) fn with_known_store(path: &Path, mut machine: MachineModel) -> MachineModel {
    let known = fs::read_to_string(path).ok().and_then(|text| model::parse(&path.display().to_string(), &text).ok());
    if let Some(store) = known.and_then(|mut known| known.stores.remove(OBJECT)) {
        machine.stores.entry(OBJECT.to_owned()).or_insert(store);
    }
    machine
}

/// Keeps the model in the user's cache folder, whole or not at all.
///
/// # Errors
///
/// When it cannot be written there; the error names the file.
pub(super) fn keep(path: &Path, machine: &MachineModel) -> std::io::Result<()> {
    let unfinished: PathBuf = path.with_extension(format!("{}.unfinished", std::process::id()));
    let written = fs::write(&unfinished, machine.to_toml()).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        // It may not even be there.
        let _ = fs::remove_file(&unfinished);
        std::io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
    })
}

/// The kept model, when it is for this decoder and size.
fn kept(path: &Path, decoder: &Decoder) -> Option<MachineModel> {
    let text = fs::read_to_string(path).ok()?;
    match model::parse(&path.display().to_string(), &text) {
        Ok(machine) if machine.title == calibrate::title(decoder) => Some(machine),
        Ok(_) => None,
        Err(trouble) => {
            say(&format!("note: the kept model of this computer cannot be read, so it is calibrated anew\n{trouble}"));
            None
        }
    }
}

/// How long ago, in the unit that suits.
pub(super) fn ago(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_cannot_be_kept_is_told_by_its_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.toml");
        fs::create_dir(&path).unwrap();
        let error = keep(&path, &model::load("reference-2core").unwrap()).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the folder is there");
    }
}
