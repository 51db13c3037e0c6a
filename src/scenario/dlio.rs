//! Workloads of DLIO, the benchmark that MLPerf Storage is made with, as scenarios.
//!
//! | DLIO | scenario |
//! | --- | --- |
//! | `dataset.num_files_train` × `num_samples_per_file` | `dataset.count` |
//! | `dataset.record_length_bytes`, `…_stdev` | `dataset.bytes`, `dataset.deviation` |
//! | `dataset.record_length_bytes_resize` | `loader.size`, the square of three channels that is nearest |
//! | `reader.batch_size` | `loader.batch`; an epoch's last samples are dropped, as there |
//! | `reader.read_threads` | `loader.lanes`: samples under way at once |
//! | `reader.computation_threads` with TensorFlow, else `read_threads` | `loader.threads` |
//! | `reader.prefetch_size` | `loader.prefetch`; with PyTorch rounded up to whole batches of each reader, and two of each if 0 |
//! | `reader.file_shuffle`, `sample_shuffle` | `loader.shuffle` |
//! | `train.computation_time` | `consumer.step` |
//! | `train.epochs`, `seed`, `total_training_steps` | `loader.epochs`, `seed`, `consumer.leave_after` |
//! | `metric.au` | `expect.accelerator_utilization` |
//!
//! Everything else that is in a file, and not switched off, is [named](LeftOut) with the reason why it is left out. Figures that DLIO has
//! a default for but that make a workload what it is must be there.

use std::{cell::RefCell, fmt, path::Path};

use toml_edit::Value as Toml;

use super::{Overrides, load};
use crate::{
    document::{
        Diagnostic, Document, Errors, FromNode, Node, Place, Positive, Source, Spanned, Table, Trouble, Value, wrong_type,
    },
    model::read_file,
    units::Count,
};

/// How the text of an imported scenario begins.
pub const IMPORTED: &str = "# Imported by Towtank";

/// A workload as a scenario.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The scenario's text.
    pub text: String,
    /// What of the workload is not in it, in the order of the file.
    pub left_out: Vec<LeftOut>,
}

/// A field that a scenario says nothing of, or not all.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// Its name, such as `checkpoint.model_size`.
    pub field: String,
    /// Where it stands.
    pub place: Place,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, _) = self.place.line_and_column();
        write!(f, "{}:{line}: `{}`: {}", self.place.source.name(), self.field, self.why)
    }
}

/// The workload in this file, as a scenario for the machine `storage-client`.
///
/// # Errors
///
/// When the file cannot be read, is not YAML, or says too little: everything that is wrong with it, each with its place.
pub fn import_dlio(path: &Path) -> Result<Imported, Trouble> {
    let cannot = |d: Diagnostic| d.hint("a workload of DLIO is a YAML file of a few kilobytes");
    let text = read_file(path, "the workload").map_err(cannot)?;
    parse_dlio(&path.to_string_lossy(), &text)
}

/// The workload in this text, which errors call `name`: as [`import_dlio`].
///
/// # Errors
///
/// When it is not YAML, or says too little.
pub fn parse_dlio(name: &str, text: &str) -> Result<Imported, Trouble> {
    let stem = Path::new(name).file_stem().map_or_else(|| "workload".to_owned(), |stem| stem.to_string_lossy().into_owned());
    convert(name, &stem, text)
}

fn convert(name: &str, stem: &str, text: &str) -> Result<Imported, Trouble> {
    let document = Document::parse_yaml(&Source::file(name, text))?;
    let errors = Errors::default();
    let file = Workload { root: &document.root, errors: &errors, used: RefCell::default() };
    let found = Found::read(&file);
    let left_out = file.left_out();
    match (errors.into_trouble(), found) {
        (None, Some(found)) => {
            let text = found.to_toml(stem);
            // What is written must be read: if it is not, the workload has a value that no scenario can have.
            load::parse(&format!("{stem}.toml"), &text, &Overrides::default())?;
            Ok(Imported { text, left_out })
        }
        (Some(trouble), _) => Err(trouble),
        (None, None) => unreachable!("a workload was not read and nothing said why"),
    }
}

/// A number that is not negative.
#[derive(Clone, Copy, Debug)]
struct Number(f64);

impl FromNode for Number {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let number = match node.value {
            Value::Integer(n) => n as f64,
            Value::Float(x) => x,
            _ => f64::NAN,
        };
        match number.is_finite() && number >= 0.0 {
            true => Ok(Number(number)),
            false => Err(wrong_type(node, path, "a number that is not negative")),
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "number", "minimum": 0, "description": "A number.", "examples": [1] })
    }
}

/// A number of steps, negative for no limit.
#[derive(Clone, Copy, Debug)]
struct Steps(i128);

impl FromNode for Steps {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match node.value {
            Value::Integer(n) => Ok(Steps(n)),
            _ => Err(wrong_type(node, path, "a whole number, -1 for no limit")),
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "integer", "description": "A number of steps.", "examples": [1] })
    }
}

/// A time, which may be given as a distribution with its mean.
#[derive(Clone, Copy, Debug)]
struct Seconds(f64);

impl FromNode for Seconds {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = "seconds, such as 0.323, or a distribution with its `mean`";
        match &node.value {
            Value::Table(table) => {
                let (_, mean) = table.fields.get("mean").ok_or_else(|| wrong_type(node, path, expected))?;
                Number::from_node(mean, &format!("{path}.mean")).map(|mean| Seconds(mean.0))
            }
            _ => match Number::from_node(node, path) {
                Ok(number) => Ok(Seconds(number.0)),
                Err(_) => Err(wrong_type(node, path, expected)),
            },
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "number", "minimum": 0, "description": "Seconds.", "examples": [0.323] })
    }
}

/// The file, and which of its fields have been asked for.
struct Workload<'a> {
    root: &'a Table,
    errors: &'a Errors,
    used: RefCell<Vec<String>>,
}

impl<'a> Workload<'a> {
    fn node(&self, path: &str) -> Option<&'a Node> {
        let mut node: Option<&'a Node> = None;
        for part in path.split('.') {
            let table = match node {
                None => self.root,
                Some(Node { value: Value::Table(table), .. }) => table,
                Some(_) => return None,
            };
            node = Some(&table.fields.get(part)?.1);
        }
        node
    }

    fn get<T: FromNode>(&self, path: &str) -> Option<Spanned<T>> {
        self.used.borrow_mut().push(path.to_owned());
        let node = self.node(path)?;
        let value = self.errors.keep(T::from_node(node, path))?;
        Some(Spanned { value, path: path.to_owned(), place: node.place.clone() })
    }

    /// The first of a field's names, of which earlier versions of DLIO had others.
    fn any<T: FromNode>(&self, section: &str, names: &[&str]) -> Option<Spanned<T>> {
        let found: Vec<_> = names.iter().filter_map(|name| self.get(&format!("{section}.{name}"))).collect();
        found.into_iter().next()
    }

    fn required<T: FromNode>(&self, section: &str, names: &[&str], example: &str) -> Option<Spanned<T>> {
        if !names.iter().any(|name| self.node(&format!("{section}.{name}")).is_some()) {
            let place = self.root.fields.get(section).map(|(key, _)| key);
            let wrong = Diagnostic::new(format!("`{section}.{}` is missing", names[0])).at(place);
            self.errors.push(wrong.hint(format!("write `{}: {example}` under `{section}:`", names[0])));
            return None;
        }
        self.any(section, names)
    }

    /// Whether a word says that something is on, as `seed` and `random` do for an order.
    fn is_on(&self, path: &str) -> bool {
        self.used.borrow_mut().push(path.to_owned());
        match self.node(path).map(|node| &node.value) {
            Some(Value::Text(word)) => word != "off",
            Some(Value::Bool(on)) => *on,
            _ => false,
        }
    }

    /// Everything that nobody has asked for and that is not switched off.
    fn left_out(&self) -> Vec<LeftOut> {
        let mut all = Vec::new();
        for (section, (place, node)) in &self.root.fields {
            match &node.value {
                Value::Table(table) => {
                    all.extend(table.fields.iter().map(|(name, (place, node))| (format!("{section}.{name}"), place, node)));
                }
                _ => all.push((section.clone(), place, node)),
            }
        }
        let used = self.used.borrow();
        all.retain(|(field, _, node)| !used.contains(field) && !matches!(node.value, Value::Bool(false)));
        all.sort_by_key(|(_, place, _)| place.span.start);
        let left_out = |(field, place, _): (String, &Place, &Node)| {
            let why = why(&field);
            LeftOut { field, place: place.clone(), why }
        };
        let mut left_out: Vec<LeftOut> = all.into_iter().map(left_out).collect();
        let mut also = |field: &str, applies: bool, why| {
            if let Some(node) = self.node(field).filter(|_| applies) {
                left_out.push(LeftOut { field: field.to_owned(), place: node.place.clone(), why });
            }
        };
        let several = matches!(self.node("dataset.num_samples_per_file").map(|n| &n.value), Some(Value::Integer(2..)));
        also("dataset.num_samples_per_file", several, "each sample is a read of its own, in an order that knows no files");
        let varies = matches!(self.node("train.computation_time").map(|n| &n.value), Some(Value::Table(_)));
        also("train.computation_time", varies, "every step takes the mean");
        let same_order = matches!(self.node("train.seed_change_epoch").map(|n| &n.value), Some(Value::Bool(false)));
        also("train.seed_change_epoch", same_order, "every epoch has an order of its own");
        left_out.sort_by_key(|one| one.place.span.start);
        left_out
    }
}

/// Why a field has no counterpart.
fn why(field: &str) -> &'static str {
    match field.split_once('.').unwrap_or((field, "")) {
        ("checkpoint", _) | ("workflow", "checkpoint") => "checkpoints are not simulated",
        ("evaluation", _)
        | ("workflow", "evaluation")
        | ("dataset", "num_files_eval" | "num_subfolders_eval")
        | ("reader", "batch_size_eval") => "evaluation is not simulated",
        ("workflow", "generate_data") => "sizes are drawn, and nothing is generated",
        ("workflow", "profiling") | ("profiling" | "output" | "hydra", _) => "every report and trace is a flag of Towtank's",
        ("dataset", "format" | "compression" | "compression_level" | "enable_chunking" | "chunk_size" | "chunk_dims") => {
            "how a sample lies in its file is the machine's cost of reading and decoding"
        }
        ("dataset", _) => "the scenario has sizes, and no files",
        ("reader", "preprocess_time" | "preprocess_time_stdev") => "what a sample costs is the machine's `costs.decode`",
        ("reader", "computation_threads") => "with PyTorch a reader does all the work on its samples",
        ("reader" | "storage", _) => "how the store is read is the machine's `stores`",
        ("train", "computation_time_stdev") => "every step takes the mean",
        ("model", _) => "nothing depends on the model but its step",
        _ => "it has no counterpart",
    }
}

/// What a workload says.
struct Found {
    title: String,
    count: u64,
    bytes: f64,
    deviation: f64,
    resized: Option<f64>,
    batch: u64,
    readers: u64,
    threads: u64,
    prefetch: u64,
    shuffle: bool,
    epochs: u64,
    seed: u64,
    steps: Option<u64>,
    step_s: f64,
    utilization: Option<f64>,
}

impl Found {
    fn read(file: &Workload<'_>) -> Option<Found> {
        for (section, (_, node)) in &file.root.fields {
            let may_be_a_word = ["model", "framework"].contains(&&section[..]);
            if !may_be_a_word && !matches!(node.value, Value::Table(_)) {
                file.errors.push(wrong_type(node, section, format!("fields under `{section}:`")));
            }
        }
        if let Some(train) = file.get::<bool>("workflow.train").filter(|train| !train.value) {
            file.errors.push(train.wrong("is off: there is no train step to simulate"));
        }
        for field in ["dataset.record_dims", "reader.transformed_sample"] {
            if let Some(node) = file.node(field).filter(|n| !matches!(&n.value, Value::List(list) if list.is_empty())) {
                let wrong = Diagnostic::new(format!("`{field}` cannot be imported")).at(Some(&node.place));
                file.errors.push(wrong.hint("write the size in bytes: `record_length_bytes`, `record_length_bytes_resize`"));
            }
        }
        let files = file.required::<Positive<Count>>("dataset", &["num_files_train"], "168");
        let bytes = file.required::<Number>("dataset", &["record_length_bytes", "record_length"], "114660");
        if let Some(bytes) = bytes.as_ref().filter(|bytes| bytes.value.0 < 1.0) {
            file.errors.push(bytes.wrong("is less than a byte"));
        }
        let batch = file.required::<Positive<Count>>("reader", &["batch_size"], "7");
        let step = file.required::<Seconds>("train", &["computation_time"], "0.323");
        let a_file = file.get::<Positive<Count>>("dataset.num_samples_per_file").map_or(1, |n| n.value.0.0);
        let deviation = file.any::<Number>("dataset", &["record_length_bytes_stdev", "record_length_stdev"]);
        let resized = file.any::<Number>("dataset", &["record_length_bytes_resize", "record_length_resize"]);
        let readers = file.get::<Count>("reader.read_threads").map_or(1, |n| n.value.0).max(1);
        let framework = file.get::<String>("framework").map(|word| word.value);
        let loader = file.get::<String>("reader.data_loader").map(|word| word.value);
        let pytorch = loader.or(framework).is_some_and(|word| word.contains("pytorch"));
        let threads = match pytorch {
            true => readers,
            false => file.get::<Count>("reader.computation_threads").map_or(readers, |n| n.value.0).max(1),
        };
        let ahead = file.get::<Count>("reader.prefetch_size").map_or(0, |n| n.value.0);
        let prefetch = match (pytorch, ahead) {
            (true, 0) => readers.saturating_mul(2),
            (true, ahead) => ahead.div_ceil(readers).saturating_mul(readers),
            (false, ahead) => ahead.max(2),
        };
        let shuffled = [file.is_on("reader.file_shuffle"), file.is_on("reader.sample_shuffle")];
        file.get::<bool>("train.seed_change_epoch");
        let epochs = file.get::<Positive<Count>>("train.epochs").map_or(1, |n| n.value.0.0);
        let seed = file.get::<Count>("train.seed").map_or(123, |n| n.value.0);
        let steps = file.get::<Steps>("train.total_training_steps").map_or(-1, |n| n.value.0);
        let model = match file.root.fields.get("model") {
            Some((_, Node { value: Value::Text(_), .. })) => file.get::<String>("model"),
            _ => file.get::<String>("model.name"),
        };
        let utilization = file.get::<Number>("metric.au");
        if let Some(au) = utilization.as_ref().filter(|au| au.value.0 > 1.0) {
            file.errors.push(au.wrong("is more than 1"));
        }
        let (files, bytes, batch, step) = (files?.value.0.0, bytes?.value.0, batch?.value.0.0, step?.value.0);
        Some(Found {
            title: model.map_or_else(|| "a workload".to_owned(), |name| name.value),
            count: files.saturating_mul(a_file),
            bytes,
            deviation: deviation.map_or(0.0, |d| d.value.0),
            resized: resized.map(|r| r.value.0).filter(|r| *r >= 1.0),
            batch,
            readers,
            threads,
            prefetch,
            shuffle: shuffled.contains(&true),
            epochs,
            seed,
            steps: u64::try_from(steps).ok().filter(|n| *n > 0),
            step_s: step,
            utilization: utilization.map(|au| au.value.0),
        })
    }

    /// Side of the square of three channels that has about as many bytes as a prepared sample.
    fn side(&self) -> u32 {
        let bytes = self.resized.unwrap_or(self.bytes);
        ((bytes / 3.0).sqrt().round() as u32).clamp(1, 65_535)
    }

    /// Memory that the loader cannot lack: what its threads work on, all batches ahead, and the reads under way \[MiB\].
    fn budget_mib(&self) -> u64 {
        let slot = 3.0 * f64::from(self.side()).powi(2);
        let variation = (1.0 + (self.deviation / self.bytes).powi(2)).ln().sqrt();
        let largest = self.bytes * (4.0 * variation).exp();
        let batches = (self.prefetch as f64 + 4.0) * self.batch as f64 * slot;
        let bytes = self.threads as f64 * (largest + slot) + 2.0 * batches + (self.readers as f64 + 1.0) * largest;
        ((bytes / f64::from(1 << 20)).ceil() as u64).max(1024)
    }

    fn to_toml(&self, stem: &str) -> String {
        let text = |words: String| Toml::from(words).to_string();
        let bytes = |n: f64| text(format!("{} B", n.round().max(1.0) as u64));
        let mut lines = vec![
            format!("{IMPORTED}, from DLIO's workload {}", stem.replace(['\n', '\r'], " ")),
            format!("title = {}", text(format!("DLIO's {}, for one accelerator", self.title))),
            format!("seed = {}", self.seed),
            "machine = \"storage-client\"\n\n[dataset]".to_owned(),
            format!("count = {}", self.count),
            format!("bytes = {}", bytes(self.bytes)),
        ];
        if self.deviation >= 1.0 {
            lines.push(format!("deviation = {}", bytes(self.deviation)));
        }
        lines.push("\n[store]\nkind = \"disk\"\n\n[loader]".to_owned());
        lines.push(format!("batch = {}", self.batch));
        lines.push(format!("threads = {}", self.threads));
        lines.push(format!("lanes = {}", self.readers));
        lines.push(format!("prefetch = {}", self.prefetch));
        lines.push(format!("budget = \"{} MiB\"", self.budget_mib()));
        lines.push(format!("shuffle = {}\ndrop_last = true", self.shuffle));
        lines.push(format!("epochs = {}", self.epochs));
        lines.push(format!("size = \"{0}x{0}\"", self.side()));
        lines.push("\n[consumer]".to_owned());
        lines.push(format!("step = \"{} ms\"", (self.step_s * 1e9).round() / 1e6));
        lines.extend(self.steps.map(|n| format!("leave_after = {n}")));
        if let Some(part) = self.utilization {
            lines.push(format!("\n[expect.accelerator_utilization]\nmin = \"{} %\"", (part * 1e6).round() / 1e4));
        }
        lines.push("\n[expect.exactly_once]\n\n[expect.order_kept]\n".to_owned());
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Recorder;

    const UNET3D: &str = include_str!("../../tests/data/dlio/unet3d_h100.yaml");
    const RESNET50: &str = include_str!("../../tests/data/dlio/resnet50_a100.yaml");

    fn import(text: &str) -> Imported {
        convert("workload.yaml", "workload", text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn told(imported: &Imported) -> String {
        imported.left_out.iter().map(|one| format!("{one}\n")).collect()
    }

    #[test]
    fn unet3d_becomes_a_scenario() {
        let imported = import(UNET3D);
        insta::assert_snapshot!(imported.text, @r#"
        # Imported by Towtank, from DLIO's workload workload
        title = "DLIO's unet3d, for one accelerator"
        seed = 123
        machine = "storage-client"

        [dataset]
        count = 168
        bytes = "146600628 B"
        deviation = "68341808 B"

        [store]
        kind = "disk"

        [loader]
        batch = 7
        threads = 4
        lanes = 4
        prefetch = 8
        budget = "7760 MiB"
        shuffle = true
        drop_last = true
        epochs = 5
        size = "836x836"

        [consumer]
        step = "323 ms"

        [expect.accelerator_utilization]
        min = "90 %"

        [expect.exactly_once]

        [expect.order_kept]
        "#);
        let fields: Vec<&str> = imported.left_out.iter().map(|one| &one.field[..]).collect();
        let expected = [
            "workflow.checkpoint",
            "dataset.data_folder",
            "dataset.format",
            "checkpoint.checkpoint_folder",
            "checkpoint.checkpoint_after_epoch",
            "checkpoint.epochs_between_checkpoints",
            "checkpoint.model_size",
        ];
        assert_eq!(fields, expected);
        assert!(told(&imported).ends_with("workload.yaml:37: `checkpoint.model_size`: checkpoints are not simulated\n"));
    }

    #[test]
    fn resnet50_becomes_a_scenario() {
        let imported = import(RESNET50);
        insta::assert_snapshot!(imported.text, @r#"
        # Imported by Towtank, from DLIO's workload workload
        title = "DLIO's resnet50, for one accelerator"
        seed = 123
        machine = "storage-client"

        [dataset]
        count = 1600
        bytes = "114660 B"

        [store]
        kind = "disk"

        [loader]
        batch = 400
        threads = 8
        lanes = 8
        prefetch = 2
        budget = "1024 MiB"
        shuffle = false
        drop_last = true
        epochs = 5
        size = "224x224"

        [consumer]
        step = "435 ms"

        [expect.accelerator_utilization]
        min = "90 %"

        [expect.exactly_once]

        [expect.order_kept]
        "#);
        let fields: Vec<&str> = imported.left_out.iter().map(|one| &one.field[..]).collect();
        let expected =
            ["model.type", "dataset.num_samples_per_file", "dataset.data_folder", "dataset.format", "reader.dont_use_mmap"];
        assert_eq!(fields, expected);
    }

    #[test]
    fn what_is_imported_can_be_simulated() {
        for text in [UNET3D, RESNET50] {
            let imported = import(text);
            let scenario = load::parse("imported.toml", &imported.text, &Overrides::set(["loader.epochs=1"])).unwrap();
            let (machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
            let simulated = scenario.simulate(&machine, &samples, Recorder::new()).unwrap();
            let kept = ["exactly_once", "order_kept"];
            assert!(simulated.verdicts.iter().filter(|v| kept.contains(&&v.name[..])).all(|v| v.held), "{}", imported.text);
            assert_eq!(simulated.metrics.delivered, samples.count() / scenario.loader.batch * scenario.loader.batch);
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_told_at_its_line() {
        let error = |text: &str| convert("workload.yaml", "workload", text).unwrap_err().to_string();
        insta::assert_snapshot!(error("dataset:\n  num_files_train: many\nreader:\n  read_threads: 4\n"), @r#"
        error: `dataset.num_files_train` is the text "many"
         --> workload.yaml:2:20
          |
        2 |   num_files_train: many
          |                    ^^^^ expected a whole number, such as 32 or 1_281_167

        error: `dataset.record_length_bytes` is missing
         --> workload.yaml:1:1
          |
        1 | dataset:
          | ^^^^^^^
        hint: write `record_length_bytes: 114660` under `dataset:`

        error: `reader.batch_size` is missing
         --> workload.yaml:3:1
          |
        3 | reader:
          | ^^^^^^
        hint: write `batch_size: 7` under `reader:`

        error: `train.computation_time` is missing
        hint: write `computation_time: 0.323` under `train:`
        "#);
        let broken = RESNET50.replace(" batch_size: 400", " batch_size: [400");
        assert!(error(&broken).contains("is not YAML"), "{}", error(&broken));
        assert!(error(&RESNET50.replace("train: True", "train: False")).contains("there is no train step to simulate"));
        assert!(error(&UNET3D.replace("au: 0.90", "au: 90")).contains("`metric.au` is more than 1"));
        assert!(
            error(&UNET3D.replace("format: npz", "record_dims: [3, 4]")).contains("`dataset.record_dims` cannot be imported")
        );
    }

    #[test]
    fn a_run_of_so_many_steps_leaves_after_them() {
        let text = RESNET50.replace(" epochs: 5", " epochs: 5\n total_training_steps: 3");
        let scenario = load::parse("imported.toml", &import(&text).text, &Overrides::default()).unwrap();
        let (machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
        let simulated = scenario.simulate(&machine, &samples, Recorder::new()).unwrap();
        assert_eq!(simulated.metrics.delivered, 3 * 400);
        assert!(simulated.verdicts.iter().filter(|v| v.name != "accelerator_utilization").all(|v| v.held));
    }

    #[test]
    fn a_distribution_of_steps_counts_with_its_mean() {
        let text = UNET3D.replace("0.323", "\n    mean: 0.25\n    stdev: 0.1\n    type: normal");
        let imported = import(&text);
        assert!(imported.text.contains("step = \"250 ms\""), "{}", imported.text);
        assert!(told(&imported).contains("every step takes the mean"), "{}", told(&imported));
    }
}
