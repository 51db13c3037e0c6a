//! `towtank calibrate`: this computer as a model.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

use serde::Serialize;
use towtank::{
    document::{Diagnostic, printable},
    model::{
        self, MachineModel,
        calibrate::{Calibrated, Effort, GpuEffort, GpuQuality, Quality, calibrate_gpus},
    },
    scenario,
};

use super::{
    Ending,
    args::CalibrateArgs,
    new_file::{Kind, NewFile},
    output::{Spinner, say},
    this_computer::{keep, measured, with_known_store},
};

/// How a machine model begins that this verb has written.
const START: &str = "# A machine model, as `towtank calibrate` measured it.\n";
const MODEL: Kind = Kind { flag: "--out", what: "machine model", start: START };

/// What was found, for `--json`.
#[derive(Serialize)]
struct Found<'a> {
    machine: &'a MachineModel,
    quality: &'a Quality,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<&'a GpuQuality>,
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Ending> {
    if let Some(url) = &args.store {
        return calibrate_store(args, url);
    }
    let scenario = scenario::load(&args.scenario, &scenario::Overrides { sets: args.sets.clone(), seed: None })?;
    let decoder = scenario.decoder()?;
    let gpus = args.device.open()?;
    if gpus.is_some() && args.out.is_none() {
        let wrong = Diagnostic::new("a model with GPUs is not kept as that of this computer, whose loaders go to the host");
        return Err(wrong.hint("name a file with `--out FILE`; `--set machine=FILE` simulates on it").into());
    }
    let new = args.out.as_deref().map(|path| NewFile::open(path, &MODEL)).transpose()?;
    let (effort, on_gpus) = if args.quick { (Effort::QUICK, GpuEffort::QUICK) } else { (Effort::THOROUGH, GpuEffort::THOROUGH) };
    let Calibrated { mut machine, quality } = measured(&decoder, args.data.as_deref(), effort)?;
    let gpus = gpus
        .map(|gpus| {
            let spinner = Spinner::start("measuring the GPUs".to_owned());
            let found = calibrate_gpus(&gpus, on_gpus);
            drop(spinner);
            found.map_err(|error| Ending::Failed(format!("the GPUs cannot be measured: {error}")))
        })
        .transpose()?
        .map(|found| {
            (machine.device, machine.kernels) = (found.device, found.kernels);
            found.quality
        });
    match new {
        Some(new) => write_model(new, &machine)?,
        None => {
            let path = kept_in()?;
            keep(&path, &with_known_store(&path, machine.clone()))?;
            say(&format!("this computer is calibrated; its model is kept in `{}`", path.display()));
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &Found { machine: &machine, quality: &quality, gpus: gpus.as_ref() })
            .map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let gpus = gpus.as_ref().map(GpuQuality::terminal).unwrap_or_default();
        write!(out, "{}\n{}{gpus}", printable(&machine.title), quality.terminal())?;
    }
    Ok(out.flush()?)
}

fn write_model((new, mut file): (NewFile, File), machine: &MachineModel) -> Result<(), Ending> {
    let path = new.path().to_owned();
    let written = file.write_all(START.as_bytes()).and_then(|()| file.write_all(machine.to_toml().as_bytes()));
    written.and_then(|()| new.finish())?;
    say(&format!("model written to `{0}`; `--set machine={0}` simulates on it", path.display()));
    Ok(())
}

/// The file in which the model of this computer is kept.
fn kept_in() -> Result<PathBuf, Ending> {
    model::cache_file().ok_or_else(|| {
        Diagnostic::new("this user has no cache folder to keep the model in").hint("name a file with `--out FILE`").into()
    })
}

/// Measures an object store, and adds it to the model of this computer.
#[cfg(feature = "remote")]
fn calibrate_store(args: &CalibrateArgs, url: &str) -> Result<(), Ending> {
    use towtank::{
        model::{
            Store,
            calibrate::{StoreEffort, StoreQuality, calibrate_store},
        },
        scenario::OBJECT,
    };

    use super::{images::bar, store::open, this_computer::calibrated};

    /// What was found, for `--json`.
    #[derive(Serialize)]
    struct FoundStore<'a> {
        store: &'a Store,
        quality: &'a StoreQuality,
    }

    let scenario = scenario::load(&args.scenario, &scenario::Overrides { sets: args.sets.clone(), seed: None })?;
    let new = args.out.as_deref().map(|path| NewFile::open(path, &MODEL)).transpose()?;
    let spinner = Spinner::start(format!("listing `{url}`"));
    let remote = open(url)?;
    drop(spinner);
    let effort = if args.quick { StoreEffort::QUICK } else { StoreEffort::THOROUGH };
    let bar = bar(1, "measuring the store");
    let found = calibrate_store(&remote, effort, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let found = found.map_err(|error| Ending::Failed(format!("cannot measure the store at `{url}`: {error}")))?;
    let mut machine = calibrated(&scenario, false)?;
    machine.stores.insert(OBJECT.to_owned(), found.store.clone());
    match new {
        Some(new) => write_model(new, &machine)?,
        None => {
            let path = kept_in()?;
            keep(&path, &machine)?;
            say(&format!("the store is measured; it is the store `{OBJECT}` of this computer's model in `{}`", path.display()));
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        let found = FoundStore { store: &found.store, quality: &found.quality };
        serde_json::to_writer_pretty(&mut out, &found).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}\n{}", printable(url), found.quality.terminal())?;
    }
    Ok(out.flush()?)
}

/// What a program without stores says.
#[cfg(not(feature = "remote"))]
fn calibrate_store(_args: &CalibrateArgs, url: &str) -> Result<(), Ending> {
    Err(super::store::without(url).into())
}
