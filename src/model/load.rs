//! Finding and reading model files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use etcetera::BaseStrategy;

use super::{DatasetModel, MachineModel};
use crate::{
    document::{Diagnostic, Document, Errors, Section, Source, Trouble, whole},
    units::nearest,
};

/// The machines that are part of the program.
pub const NAMES: &[&str] =
    &["reference-2core", "p4d.24xlarge", "dgx-a100", "p5.48xlarge", "laptop", "epyc-9b14", "storage-client", "ideal"];

fn embedded(name: &str) -> Option<&'static str> {
    Some(match name {
        "reference-2core" => include_str!("../../models/reference-2core.toml"),
        "p4d.24xlarge" => include_str!("../../models/p4d.24xlarge.toml"),
        "dgx-a100" => include_str!("../../models/dgx-a100.toml"),
        "p5.48xlarge" => include_str!("../../models/p5.48xlarge.toml"),
        "laptop" => include_str!("../../models/laptop.toml"),
        "epyc-9b14" => include_str!("../../models/epyc-9b14.toml"),
        "storage-client" => include_str!("../../models/storage-client.toml"),
        "ideal" => include_str!("../../models/ideal.toml"),
        _ => return None,
    })
}

/// The datasets that are part of the program.
pub const DATASETS: &[&str] = &["imagenet", "unet3d", "resnet50", "cosmoflow", "records"];

fn embedded_dataset(name: &str) -> Option<&'static str> {
    Some(match name {
        "imagenet" => include_str!("../../models/datasets/imagenet.toml"),
        "unet3d" => include_str!("../../models/datasets/unet3d.toml"),
        "resnet50" => include_str!("../../models/datasets/resnet50.toml"),
        "cosmoflow" => include_str!("../../models/datasets/cosmoflow.toml"),
        "records" => include_str!("../../models/datasets/records.toml"),
        _ => return None,
    })
}

/// Where calibration keeps its model of this computer, when there is a home folder.
pub fn cache_file() -> Option<PathBuf> {
    let strategy = etcetera::choose_base_strategy().ok()?;
    Some(strategy.cache_dir().join("towtank").join("machine.toml"))
}

/// The machine of this name, or in this file. What looks like a path is one; a name is one of [`NAMES`].
///
/// # Errors
///
/// When there is no such machine, or its file is wrong.
pub fn load(name: &str) -> Result<MachineModel, Trouble> {
    match embedded(name) {
        Some(text) => parse(&format!("models/{name}.toml"), text),
        None if looks_like_a_path(name) => parse(name, &read_file(Path::new(name), "the machine model")?),
        None => Err(unknown("machine", name, NAMES).into()),
    }
}

/// Reads a machine's model; `name` is what errors call the text.
///
/// # Errors
///
/// When the text is not a whole model: everything that is wrong with it.
pub fn parse(name: &str, text: &str) -> Result<MachineModel, Trouble> {
    read(name, text, MachineModel::read)
}

/// The dataset of this name, such as `imagenet`, or in this file.
///
/// # Errors
///
/// When there is no such dataset, or its file is wrong.
pub fn load_dataset(name: &str) -> Result<DatasetModel, Trouble> {
    match embedded_dataset(name) {
        Some(text) => read(&format!("models/datasets/{name}.toml"), text, DatasetModel::read),
        None if looks_like_a_path(name) => read(name, &read_file(Path::new(name), "the dataset model")?, DatasetModel::read),
        None => Err(unknown("dataset", name, DATASETS).into()),
    }
}

/// The JSON Schema of a machine's model, for editors.
pub fn schema() -> serde_json::Value {
    let description = "A machine as numbers, each with its unit, its source and how far it may be off.";
    whole("A machine's model for Towtank", description, Section::sketch(MachineModel::read))
}

/// The JSON Schema of a dataset's model, for editors.
pub fn dataset_schema() -> serde_json::Value {
    let description = "How many samples there are, and how large. Encoded sizes are lognormal.";
    whole("A dataset's model for Towtank", description, Section::sketch(DatasetModel::read))
}

fn read<T>(name: &str, text: &str, build: impl FnOnce(Section<'_>) -> Option<T>) -> Result<T, Trouble> {
    let source: Arc<Source> = Source::file(name, text);
    let document = Document::parse(&source)?;
    let errors = Errors::default();
    let built = build(Section::root(&document.root, &errors));
    match (errors.into_trouble(), built) {
        (None, Some(model)) => Ok(model),
        (Some(trouble), _) => Err(trouble),
        (None, None) => unreachable!("`{name}` was not read and nothing said why"),
    }
}

/// Whether it can only be meant as a file.
pub(crate) fn looks_like_a_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/') || name.contains(std::path::MAIN_SEPARATOR)
}

/// The text of a file, or an error that says what it should have been.
///
/// Only an ordinary file of a sensible size is read: a device has no end, and a dataset given by mistake would fill the memory.
pub(crate) fn read_file(path: &Path, what: &str) -> Result<String, Diagnostic> {
    const MOST_BYTES: u64 = 16 << 20;
    let cannot = |why: String| Diagnostic::new(format!("cannot read {what} `{}`: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|e| cannot(e.to_string()))?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "it is a folder" } else { "it is no ordinary file" };
        return Err(cannot(kind.to_owned()).hint(format!("{what} is a TOML file")));
    }
    if metadata.len() > MOST_BYTES {
        return Err(cannot(format!("it has {} bytes", metadata.len())).hint(format!("{what} is a TOML file of a few kilobytes")));
    }
    std::fs::read_to_string(path).map_err(|e| cannot(e.to_string()))
}

fn unknown(what: &str, name: &str, known: &[&str]) -> Diagnostic {
    let list: Vec<String> = known.iter().map(|k| format!("`{k}`")).collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{} {}, or the path of a file", list.join(", "), if list.len() == 1 { "exists" } else { "exist" }),
    };
    Diagnostic::new(format!("there is no {what} `{name}`")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_of_the_program_is_whole_and_survives_being_written() {
        for name in NAMES {
            let machine = load(name).unwrap_or_else(|e| panic!("{e}"));
            let written = machine.to_toml();
            let again = parse("written.toml", &written).unwrap_or_else(|e| panic!("{e}\n{written}"));
            assert_eq!(again, machine, "{written}");
        }
    }

    #[test]
    fn every_dataset_of_the_program_is_whole() {
        for name in DATASETS {
            load_dataset(name).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn what_is_no_ordinary_file_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large.toml");
        std::fs::File::create(&large).unwrap().set_len(1 << 30).unwrap();
        let error = |path: &Path| read_file(path, "the scenario").unwrap_err().to_string();
        assert!(error(Path::new("/dev/zero")).contains("it is no ordinary file"));
        assert!(error(folder.path()).contains("it is a folder"));
        assert!(error(&large).contains("it has 1073741824 bytes"));
    }

    #[test]
    fn the_dataset_of_the_program_is_whole() {
        let imagenet = load_dataset("imagenet").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(imagenet.count.value.0, 1_281_167);
    }

    #[test]
    fn a_machine_that_is_not_there_is_missed_by_name() {
        insta::assert_snapshot!(load("reference-2cores").unwrap_err(), @"
        error: there is no machine `reference-2cores`
        hint: did you mean `reference-2core`?
        ");
        insta::assert_snapshot!(load("cray").unwrap_err(), @"
        error: there is no machine `cray`
        hint: `reference-2core`, `p4d.24xlarge`, `dgx-a100`, `p5.48xlarge`, `laptop`, `epyc-9b14`, `storage-client`, `ideal` exist, or the path of a file
        ");
        let path = load("no/such/machine.toml").unwrap_err().to_string();
        assert!(path.starts_with("error: cannot read the machine model `no/such/machine.toml`: "), "{path}");
    }

    #[test]
    fn steps_that_a_busy_host_slows_down_rise_with_its_threads() {
        let text = include_str!("../../models/reference-2core.toml");
        let with =
            |slowed: &str| parse("odd.toml", &text.replace("lends_slots = true", &format!("lends_slots = true\n{slowed}")));
        let machine =
            with(r#"slowed = [{ busy = 1, by = "8 %" }, { busy = 2, by = "120 %" }]"#).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(machine.device.slowed.iter().map(|s| s.by.as_ppm()).collect::<Vec<_>>(), [80_000, 1_200_000]);
        insta::assert_snapshot!(with(r#"slowed = [{ busy = 2, by = "8 %" }, { busy = 1, by = "120 %" }]"#).unwrap_err(), @r#"
        error: `device.slowed` does not rise in `busy`
          --> odd.toml:24:10
           |
        24 | slowed = [{ busy = 2, by = "8 %" }, { busy = 1, by = "120 %" }]
           |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#);
        let unnamed = with(r#"slowed = [{ busy = 2 }]"#).unwrap_err().to_string();
        assert!(unnamed.contains("`device.slowed[0].by` is missing"), "{unnamed}");
    }

    #[test]
    fn cores_that_do_not_go_with_their_threads_are_refused() {
        let with = |cpu: &str| {
            let text = include_str!("../../models/reference-2core.toml").replace("pool_threads = 2", cpu);
            parse("odd.toml", &text).map(|machine| machine.cpu.cores.map(|n| n.value.0)).map_err(|e| e.to_string())
        };
        assert_eq!(with("cores = 1\nsmt_speed = \"60 %\""), Ok(Some(1)));
        for (cpu, complaint) in [
            ("cores = 1", "`cpu.cores` says nothing without `cpu.smt_speed`"),
            ("smt_speed = \"60 %\"", "`cpu.smt_speed` says nothing without `cpu.cores`"),
            ("cores = 3\nsmt_speed = \"60 %\"", "`cpu.cores` is 3 for 2 hardware threads"),
            ("cores = 1\nsmt_speed = \"160 %\"", "`cpu.smt_speed` is more than that of a thread that has its core to itself"),
            ("cores = 0\nsmt_speed = \"60 %\"", "`cpu.cores` is zero"),
        ] {
            let error = with(cpu).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn a_disk_says_what_sets_it_apart_and_what_is_odd_about_it_is_told() {
        let with = |disk: &str| {
            let text = include_str!("../../models/reference-2core.toml").replace("connections = 64", disk);
            parse("odd.toml", &text).map_err(|e| e.to_string())
        };
        let disk = "connections = 1\nblock = \"4 KiB\"\niops = \"500000 requests/s\"\nrequest = \"128 KiB\"\nrotation = \"8 ms\"\ncached = \"30 %\"";
        let machine = with(disk).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parse("written.toml", &machine.to_toml()).unwrap_or_else(|e| panic!("{e}")), machine);
        let sim = machine.to_config(2, &machine.stores["disk"]).store.disk.expect("a disk");
        let expected = crate::sim::DiskSpec {
            block_bytes: 4096,
            requests_per_s: Some(500_000),
            request_bytes: Some(131_072),
            rotation_ns: 8_000_000,
            cached_ppm: 300_000,
        };
        assert_eq!(sim, expected);
        assert_eq!(machine.to_config(2, &machine.stores["object"]).store.disk, None);
        for (disk, complaint) in [
            ("request = \"128 KiB\"", "`stores.disk.request` says nothing without `stores.disk.iops`"),
            ("cached = \"130 %\"", "`stores.disk.cached` is more than the whole"),
            ("block = \"0 B\"", "`stores.disk.block` is zero"),
            ("blocks = \"4 KiB\"", "did you mean `block`?"),
        ] {
            let error = with(disk).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn everything_wrong_with_a_model_is_said_at_once() {
        let text = r#"
title = "odd"
[cpu]
threads = 0
wake_up = { value = "6 us", uncertanty = "50 %" }
[scheduler]
per_wake = 5
per_completion = "1 µs"
[device]
kind = "tpu"
copied_by = "pool"
lends_slots = true
copy = {}
[costs]
decode = { residual = ["100 %", "90 %"] }
[stores]
disk = { reader = "own", first_byte = { quantiles = [{ at = "0 %", value = "1 ms" }] } }
"#;
        insta::assert_snapshot!(parse("odd.toml", text).unwrap_err());
    }
}
