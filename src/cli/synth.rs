//! `towtank synth`: a folder of photo-like JPEGs.

use std::io::{self, Write};

use serde::Serialize;
use towtank::{
    synth,
    units::{Size, counted},
};

use super::{
    Ending,
    args::SynthArgs,
    images::{synthetic_folder, write},
    output::say,
};

/// What was made, for `--json`.
#[derive(Serialize)]
struct Made<'a> {
    folder: &'a str,
    #[serde(flatten)]
    summary: &'a synth::Summary,
    made: u64,
}

pub(crate) fn run(args: &SynthArgs) -> Result<(), Ending> {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => synthetic_folder(args.count.0, args.seed)?,
    };
    let summary = write(&folder, args.count.0, args.seed)?;
    let name = folder.to_string_lossy();
    let mut out = io::stdout().lock();
    if args.json {
        let made = summary.made;
        serde_json::to_writer_pretty(&mut out, &Made { folder: &name, summary: &summary, made }).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{name}")?;
    }
    let mean = Size::of_base((summary.bytes / summary.count.max(1)) as f64);
    say(&format!("{} of {mean} on average", counted(summary.count, "image", "images")));
    Ok(())
}
