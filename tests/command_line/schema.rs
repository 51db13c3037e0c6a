//! What editors are told of the files is what the readers read.

use std::{fs, path::Path};

use serde_json::{Value, json};
use towtank::{
    model,
    scenario::{self, Overrides},
};

use super::{stderr, towtank};

#[path = "schema/check.rs"]
mod check;
use check::faults;

fn from_toml(text: &str) -> Value {
    let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{e}: {text}"));
    serde_json::to_value(table).unwrap()
}

fn files(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tomls = paths.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    tomls.map(|path| (path.display().to_string(), from_toml(&fs::read_to_string(&path).unwrap()))).collect()
}

#[test]
fn every_file_that_is_part_of_the_program_is_as_its_schema_says() {
    for (folder, schema) in
        [("scenarios", scenario::schema()), ("models", model::schema()), ("models/datasets", model::dataset_schema())]
    {
        let files = files(folder);
        assert!(!files.is_empty(), "{folder}");
        for (path, file) in files {
            assert_eq!(faults(&schema, &file), [""; 0], "{path}");
        }
    }
}

#[test]
fn the_schemas_beside_the_documentation_are_those_of_the_program() {
    for format in ["scenario", "machine", "dataset"] {
        let printed = towtank(&["schema", format]);
        assert_eq!(printed.status.code(), Some(0), "{}", stderr(&printed));
        let kept = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schema/{format}.json"))).unwrap_or_default();
        assert!(kept == printed.stdout, "write it anew: cargo run -- schema {format} > docs/schema/{format}.json");
    }
    assert_eq!(towtank(&["schema"]).stdout, towtank(&["schema", "scenario"]).stdout);
    assert_eq!(towtank(&["schema", "scene"]).status.code(), Some(2));
}

#[test]
fn a_wrong_field_unit_or_word_is_marked() {
    let wrong = |text: &str| faults(&scenario::schema(), &from_toml(text)).join("; ");
    insta::assert_snapshot!(wrong("title = \"a\"\n[loader]\nprefech = 2"), @"`loader.prefech` is unknown");
    insta::assert_snapshot!(wrong("title = \"a\"\n[consumer]\nstep = \"5 sec\""), @r#"`consumer.step` is "5 sec", against its pattern"#);
    insta::assert_snapshot!(wrong("title = \"a\"\n[loader]\norder = \"planned\""), @r#"`loader.order` is "planned", against its enum"#);
    insta::assert_snapshot!(wrong("seed = -1"), @r#"`seed` is -1, against its minimum; `` has no "title""#);
    insta::assert_snapshot!(wrong("title = \"a\"\n[expect.throughput]\nmin = \"5 ms\""), @r#"`expect.throughput.min` is "5 ms", against its pattern"#);
    let wrong = |text: &str| faults(&model::dataset_schema(), &from_toml(text)).join("; ");
    insta::assert_snapshot!(wrong("title = \"a\"\ncount = 0\nbytes = \"1 kB\"\nsigma = -1\npixels = 9\nlargest = \"1 MiB\""), @"`count` is 0, against its anyOf; `sigma` is -1, against its anyOf");
}

/// Calls `visit` with the path and schema of every field of a table.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    let under = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        visit(&under(name), field);
        walk(field, &under(name), visit);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], &under("*"), visit);
    }
    for way in schema["anyOf"].as_array().into_iter().flatten() {
        walk(way, path, visit);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], path, visit);
    }
}

#[test]
fn every_field_is_described_and_has_an_example_that_is_right() {
    for schema in [scenario::schema(), model::schema(), model::dataset_schema()] {
        let mut fields = 0;
        walk(&schema, "", &mut |path, field| {
            fields += 1;
            let described = field["description"].as_str().unwrap_or_default();
            assert!(described.len() > 8 && described.ends_with('.'), "`{path}` is not described: {described:?}");
            assert!(!described.contains("]("), "`{path}` has a link of the code: {described}");
            let examples = field["examples"].as_array().cloned().unwrap_or_default();
            let of_tables = field["properties"].is_object() || field["additionalProperties"].is_object();
            let of_tables = of_tables || field["items"]["properties"].is_object();
            assert!(of_tables || !examples.is_empty(), "`{path}` has no example");
            for example in examples {
                assert_eq!(faults(field, &example), [""; 0], "`{path}`");
            }
        });
        assert!(fields > 7, "{fields}");
    }
}

/// Values of every type, right for one field and wrong for others.
const VALUES: &[&str] = &[
    "0",
    "1",
    "32",
    "-1",
    "1.5",
    "-0.5",
    "true",
    "\"\"",
    "\" \"",
    "\"plan\"",
    "\"skip\"",
    "\"own\"",
    "\"5 ms\"",
    "\"5ms\"",
    "\" 5 ms \"",
    "\"0 ms\"",
    "\"-5 ms\"",
    "\"+5 ms\"",
    "\"5. ms\"",
    "\".5 ms\"",
    "\". ms\"",
    "\"1_000.5 us\"",
    "\"_1 ms\"",
    "\"5 sec\"",
    "\"5 Ms\"",
    "\"5\"",
    "\"64 KiB\"",
    "\"64 kib\"",
    "\"0 B\"",
    "\"12 GB/s\"",
    "\"0.0 b/s\"",
    "\"9 img/s\"",
    "\"9 GET/s\"",
    "\"3 ns/B\"",
    "\"3 ns/px\"",
    "\"0 %\"",
    "\"10 %\"",
    "\"99.9 %\"",
    "\"100 %\"",
    "\"100.0 %\"",
    "\"00100 %\"",
    "\"101 %\"",
    "\"1_0 %\"",
    "\"1000 %\"",
    "\".5 %\"",
    "\"320x240\"",
    "\"320×240\"",
    "\"0x240\"",
    "\"320x\"",
    "[]",
    "[1, 2]",
    "[-1]",
    "[\"90 %\", \"100 %\"]",
    "[\"5 ms\"]",
    "{}",
    "{ share = \"2 %\", samples = [1] }",
    "{ share = 2 }",
    "{ value = \"5 ms\", source = \"here\", uncertainty = \"10 %\" }",
    "{ value = 5 }",
    "{ value = \"5 ms\", sauce = \"here\" }",
    "{ quantiles = [{ at = \"0 %\", value = \"1 ms\" }, { at = \"100 %\", value = \"2 ms\" }] }",
    "{ quantiles = [{ at = \"0 %\" }] }",
    "{ min = \"5 ms\" }",
    "{ min = \"9 img/s\", max = \"10 img/s\" }",
    "{ is = \"decode\" }",
    "{ is = \"encode\" }",
    "{ within = { of = \"9 img/s\", tol = \"10 %\" } }",
    "{ within = { of = \"9 img/s\" } }",
];

/// A file with one field set to a value.
fn with(base: &toml::Table, path: &str, value: &str) -> String {
    let mut file = base.clone();
    let mut names: Vec<&str> = path.split('.').collect();
    let last = names.pop().unwrap();
    let mut table = &mut file;
    for name in names {
        let inner = table.entry(name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = inner.as_table_mut().unwrap();
    }
    let value: toml::Table = format!("x = {value}").parse().unwrap();
    table.insert(last.to_owned(), value["x"].clone());
    file.to_string()
}

/// Holds what is read against what the schema allows, for every field and every one of [`VALUES`]. A reader that wants two fields to go
/// together, which a schema does not say, has a name in `together`.
fn agree(base: &str, schema: &Value, together: &[&str], reads: &dyn Fn(&str) -> Result<(), String>) {
    let base: toml::Table = base.parse().unwrap();
    assert_eq!(reads(&base.to_string()), Ok(()));
    let mut paths = Vec::new();
    let known = |path: &str| path.replace("costs.*", "costs.decode").replace("stores.*", "stores.disk");
    // Of tables that stand where a value may, their fields are not addressed by a path.
    walk(schema, "", &mut |path, field| {
        if field["properties"].is_null() {
            paths.push(known(path));
        }
    });
    paths.retain(|path| paths_of_tables(&base, path));
    assert!(paths.len() > 6);
    for path in &paths {
        for value in VALUES {
            let text = with(&base, path, value);
            let (read, allowed) = (reads(&text), faults(schema, &from_toml(&text)));
            let right = if read.is_ok() { allowed.is_empty() } else { !allowed.is_empty() || together.contains(&path.as_str()) };
            assert!(right, "{path} = {value}: {read:?}, but the schema finds {allowed:?}");
        }
    }
}

/// Whether the tables that lead to a field are tables in the file, or not there.
fn paths_of_tables(base: &toml::Table, path: &str) -> bool {
    let names: Vec<&str> = path.split('.').collect();
    let mut table = Some(base);
    for name in &names[..names.len() - 1] {
        table = match table.and_then(|t| t.get(*name)) {
            Some(toml::Value::Table(inner)) => Some(inner),
            Some(_) => return false,
            None => None,
        };
    }
    names.len() <= 2 || table.is_some()
}

#[test]
fn a_scenario_is_read_when_its_schema_says_so() {
    let base = "title = \"a\"\n[dataset]\nkind = \"synthetic\"\n[loader]\nbatch = 1\nerrors = \"skip\"\norder = \"completion\"\nworld = 65535\n\
                retry_pause = \"0 ms\"\ndevice_stage = \"normalize\"\n[consumer]\n[faults]\ntruncated = \"1 %\"\nslow_reads = \"1 %\"\n[store]\n[ranks]\n[expect]\n\
                [replay]\ninvariant = \"progress\"\n";
    let reads = |text: &str| scenario::parse("a.toml", text, &Overrides::default()).map(drop).map_err(|e| e.to_string());
    // They go with `dataset.kind`, `ranks.count`, `loader.design`, or each other.
    let together = [
        "dataset.model",
        "dataset.bytes",
        "dataset.deviation",
        "dataset.path",
        "dataset.kind",
        "ranks.count",
        "loader.world",
        "loader.design",
        "loader.workers",
        "loader.prefetch_factor",
        "loader.worker_start",
        "loader.retry_pause",
        "loader.errors",
        "loader.order",
    ];
    agree(base, &scenario::schema(), &together, &reads);
}

#[test]
fn a_machine_is_read_when_its_schema_says_so() {
    let base = include_str!("../../models/laptop.toml");
    let reads = |text: &str| model::parse("a.toml", text).map(drop).map_err(|e| e.to_string());
    let together = ["cpu.threads", "cpu.cores", "cpu.smt_speed", "device.copied_by", "stores.disk.request", "lock.held"];
    agree(base, &model::schema(), &together, &reads);
}

#[test]
fn a_dataset_is_read_when_its_schema_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let reads = |text: &str| {
        fs::write(&path, text).unwrap();
        model::load_dataset(path.to_str().unwrap()).map(drop).map_err(|e| e.to_string())
    };
    agree(include_str!("../../models/datasets/imagenet.toml"), &model::dataset_schema(), &[], &reads);
    assert_eq!(model::dataset_schema()["additionalProperties"], json!(false));
}
