//! Where a run is written to.

use std::path::PathBuf;

use clap::Args;

/// Where a run is written to beside standard output.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write the trace to a file for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the report as one self-contained page for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl OutputArgs {
    /// Those of one of several processes, which all have the same command line: `run.json` is `run.rank3.json`.
    pub(crate) fn of_rank(&self, rank: u16) -> OutputArgs {
        let named = |path: &PathBuf| {
            let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
            path.with_extension(format!("rank{rank}{ending}"))
        };
        OutputArgs { trace: self.trace.as_ref().map(named), html: self.html.as_ref().map(named) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_rank_are_told_apart_before_their_endings() {
        let named = |path: &str| {
            let output = OutputArgs { trace: Some(PathBuf::from(path)), html: None };
            output.of_rank(3).trace.unwrap().to_string_lossy().into_owned()
        };
        assert_eq!(named("run.json"), "run.rank3.json");
        assert_eq!(named("out/run.of.today.json"), "out/run.of.today.rank3.json");
        assert_eq!(named("run"), "run.rank3");
    }
}
