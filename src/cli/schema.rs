//! `towtank schema`: what an editor needs to complete and check the files.

use std::io::{self, Write};

use towtank::{model, scenario};

use super::{
    Ending,
    args::{Format, SchemaArgs},
};

pub(crate) fn run(args: &SchemaArgs) -> Result<(), Ending> {
    let schema = match args.format {
        Format::Scenario => scenario::schema(),
        Format::Machine => model::schema(),
        Format::Dataset => model::dataset_schema(),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &schema).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
