//! `towtank calibrate`: this computer as a model.

use std::io::{self, Write};

use serde::Serialize;
use towtank::{
    document::Diagnostic,
    model::{
        self, MachineModel,
        calibrate::{Calibrated, Effort, Quality},
    },
    scenario,
};

use super::{
    Ending,
    args::CalibrateArgs,
    new_file::{Kind, NewFile},
    output::say,
    this_computer::{keep, measured},
};

/// How a machine model begins that this verb has written.
const START: &str = "# A machine model, as `towtank calibrate` measured it.\n";
const MODEL: Kind = Kind { flag: "--out", what: "machine model", start: START };

/// What was found, for `--json`.
#[derive(Serialize)]
struct Found<'a> {
    machine: &'a MachineModel,
    quality: &'a Quality,
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Ending> {
    let scenario = scenario::load(&args.scenario, &scenario::Overrides { sets: args.sets.clone(), seed: None })?;
    let decoder = scenario.decoder()?;
    let new = args.out.as_deref().map(|path| NewFile::open(path, &MODEL)).transpose()?;
    let effort = if args.quick { Effort::QUICK } else { Effort::THOROUGH };
    let Calibrated { machine, quality } = measured(&decoder, args.data.as_deref(), effort)?;
    match new {
        Some((new, mut file)) => {
            let path = new.path().to_owned();
            let written = file.write_all(START.as_bytes()).and_then(|()| file.write_all(machine.to_toml().as_bytes()));
            written.and_then(|()| new.finish())?;
            say(&format!("model written to `{0}`; `--set machine={0}` simulates on it", path.display()));
        }
        None => {
            let path = model::cache_file().ok_or_else(|| {
                Diagnostic::new("this user has no cache folder to keep the model in").hint("name a file with `--out FILE`")
            })?;
            keep(&path, &machine)?;
            say(&format!("this computer is calibrated; its model is kept in `{}`", path.display()));
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &Found { machine: &machine, quality: &quality }).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}\n{}", machine.title, quality.terminal())?;
    }
    Ok(out.flush()?)
}
