//! A scenario's text with fields changed, and everything else, comments included, as it was.

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::{Overrides, load};
use crate::document::{Diagnostic, Trouble};

/// How the text of a tuned scenario begins.
pub const TUNED: &str = "# Tuned by Towtank";

/// Expectations that hold whatever the settings are; the others are about a scenario as it was.
const KEPT: [&str; 2] = ["exactly_once", "order_kept"];

/// The text of the scenario of this name, or in this file, with `overrides` and then `sets` written into it, and the expectations of its
/// figures replaced by `expectations`: all `path.to.field=value`, as `--set` takes them. It begins with [`TUNED`] and `note`.
///
/// # Errors
///
/// When there is no such scenario, or a field cannot be where it is said to be.
pub fn edited(
    path_or_name: &str,
    overrides: &Overrides,
    sets: &[String],
    expectations: &[String],
    note: &str,
) -> Result<String, Trouble> {
    let (name, text) = load::text(path_or_name)?;
    let mut document: DocumentMut =
        text.parse().map_err(|e: toml_edit::TomlError| Diagnostic::new(format!("`{name}` is not TOML: {}", e.message())))?;
    let seed = overrides.seed.map(|seed| format!("seed={seed}"));
    for set in overrides.sets.iter().chain(&seed) {
        put(document.as_table_mut(), set)?;
    }
    if let Some(expect) = document.get_mut("expect").and_then(Item::as_table_like_mut) {
        let others: Vec<String> = expect.iter().map(|(key, _)| key.to_owned()).filter(|key| !KEPT.contains(&&key[..])).collect();
        for key in others {
            expect.remove(&key);
        }
    }
    for set in sets.iter().chain(expectations) {
        put(document.as_table_mut(), set)?;
    }
    let edited = document.to_string();
    // One that was tuned before has been told so once.
    let body = edited.strip_prefix(TUNED).and_then(|rest| rest.split_once('\n')).map_or(&edited[..], |(_, rest)| rest);
    let note = note.replace(['\n', '\r'], " ");
    Ok(format!("{TUNED}: {note}\n{body}"))
}

/// A scenario's text with `overrides` written into it, then fields written and, where they have no value, taken out, and without the
/// expectations of its figures. `name` is what errors call the text.
///
/// # Errors
///
/// When it is not TOML, or a field cannot be where it is said to be.
pub(crate) fn rewritten(
    name: &str,
    text: &str,
    overrides: &Overrides,
    fields: &[(String, Option<String>)],
) -> Result<String, Trouble> {
    let mut document: DocumentMut =
        text.parse().map_err(|e: toml_edit::TomlError| Diagnostic::new(format!("`{name}` is not TOML: {}", e.message())))?;
    for set in &overrides.sets {
        put(document.as_table_mut(), set)?;
    }
    if let Some(expect) = document.get_mut("expect").and_then(Item::as_table_like_mut) {
        let others: Vec<String> = expect.iter().map(|(key, _)| key.to_owned()).filter(|key| !KEPT.contains(&&key[..])).collect();
        for key in others {
            expect.remove(&key);
        }
    }
    document.remove("replay");
    for (path, value) in fields {
        match value {
            Some(value) => put(document.as_table_mut(), &format!("{path}={value}"))?,
            None => take_out(document.as_table_mut(), path),
        }
    }
    Ok(document.to_string())
}

/// Takes a field out of a table, if it is there.
fn take_out(root: &mut Table, path: &str) {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table: &mut dyn TableLike = root;
    for part in parents.split('.').filter(|part| !part.is_empty()) {
        let Some(inner) = table.get_mut(part).and_then(Item::as_table_like_mut) else { return };
        table = inner;
    }
    table.remove(last);
}

/// Writes `path.to.field=value` into a table; `value` is TOML, or else taken as text. What stood beside the old value stays.
fn put(root: &mut Table, set: &str) -> Result<(), Diagnostic> {
    let wrong = |why: &str| Diagnostic::new(format!("`{set}` cannot be written into the scenario: {why}"));
    let (path, value) = set.split_once('=').ok_or_else(|| wrong("it has no value"))?;
    let value = value.trim();
    let mut value: Value = value.parse().unwrap_or_else(|_| Value::from(value));
    let parts: Vec<&str> = path.split('.').map(str::trim).collect();
    let (last, parents) = parts.split_last().expect("a split has at least one part");
    let mut table: &mut dyn TableLike = root;
    for part in parents {
        let fresh = || Item::Table(Table::new());
        table = table.entry(part).or_insert_with(fresh).as_table_like_mut().ok_or_else(|| wrong("it goes through a value"))?;
    }
    match table.get_mut(last).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(last, Item::Value(value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn what_is_not_changed_stays_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let text = "# Mine.\ntitle = \"mine\"\n\n[loader] # ours\nbatch = 16 # small\nthreads=9   # many\n\n[expect.throughput]\nmin = \"9 samples/s\"\n\n\
                    [expect.exactly_once]\n";
        std::fs::write(&path, text).unwrap();
        let overrides = Overrides { sets: vec!["consumer.step=5 ms".to_owned()], seed: Some(3) };
        let sets = ["loader.threads=2".to_owned(), "loader.budget=64 MiB".to_owned()];
        let expectations = ["expect.accelerator_utilization.min=95 %".to_owned()];
        let edit = |path: &std::path::Path| {
            edited(path.to_str().unwrap(), &overrides, &sets, &expectations, "for AU\nand more").unwrap()
        };
        let once = edit(&path);
        insta::assert_snapshot!(once, @r#"
        # Tuned by Towtank: for AU and more
        # Mine.
        title = "mine"
        seed = 3

        [loader] # ours
        batch = 16 # small
        threads=2   # many
        budget = "64 MiB"

        [expect.exactly_once]

        [expect.accelerator_utilization]
        min = "95 %"

        [consumer]
        step = "5 ms"
        "#);
        let scenario = parse("mine.toml", &once, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((scenario.loader.threads, scenario.seed, scenario.consumer.step.as_ns()), (Some(2), 3, 5_000_000));
        assert!(scenario.expect.exactly_once.is_some() && scenario.expect.throughput.is_none());
        std::fs::write(&path, &once).unwrap();
        assert_eq!(edit(&path), once, "told once");
    }
}
