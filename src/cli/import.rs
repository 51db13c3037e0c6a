//! `towtank import`: another benchmark's file as a scenario.

use std::io::{self, Write};

use towtank::scenario;

use super::{
    Ending,
    args::{ImportArgs, ImportFormat},
    new_file::{Kind, NewFile},
    output::say,
};

/// What `--out` writes.
const SCENARIO: Kind = Kind { flag: "--out", what: "imported scenario", start: scenario::IMPORTED };

pub(crate) fn run(args: &ImportArgs) -> Result<(), Ending> {
    let ImportFormat::Dlio { file, out } = &args.format;
    let imported = scenario::import_dlio(file)?;
    match out {
        None => io::stdout().lock().write_all(imported.text.as_bytes())?,
        Some(path) => {
            let (new, mut written) = NewFile::open(path, &SCENARIO)?;
            written.write_all(imported.text.as_bytes())?;
            new.finish()?;
        }
    }
    for left_out in &imported.left_out {
        say(&format!("left out: {left_out}"));
    }
    Ok(())
}
