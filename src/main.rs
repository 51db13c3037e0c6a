//! The command line of Towtank: parse, run, and one of three exit codes.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::run(&cli::parse())
}
