//! Writing a model as a file that a person would have written.

use std::fmt::Write;

use serde::Serialize;
use toml::{Table, Value};

use super::MachineModel;

impl MachineModel {
    /// The model as TOML, with a table to a section and a line to a number. Reading it gives the same model.
    pub fn to_toml(&self) -> String {
        let table = Table::try_from(self).expect("a model holds nothing that TOML cannot");
        let mut out = String::new();
        let (sections, fields): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| is_section(v));
        for (key, value) in fields {
            line(&mut out, key, value);
        }
        for (key, value) in sections {
            section(&mut out, &quoted(key), value.as_table().expect("sections are tables"));
        }
        out
    }
}

fn section(out: &mut String, path: &str, table: &Table) {
    let (sections, fields): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| is_section(v));
    if !fields.is_empty() || sections.is_empty() {
        let _ = writeln!(out, "\n[{path}]");
    }
    for (key, value) in fields {
        line(out, key, value);
    }
    for (key, value) in sections {
        section(out, &format!("{path}.{}", quoted(key)), value.as_table().expect("sections are tables"));
    }
}

/// A table is a section of its own unless it is a single number with its origin, or a distribution.
fn is_section(value: &Value) -> bool {
    value.as_table().is_some_and(|t| !t.contains_key("value") && !t.contains_key("quantiles"))
}

fn line(out: &mut String, key: &str, value: &Value) {
    let _ = writeln!(out, "{} = {}", quoted(key), inline(value));
}

fn inline(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let fields: Vec<String> = table.iter().map(|(k, v)| format!("{} = {}", quoted(k), inline(v))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(list) => {
            let entries: Vec<String> = list.iter().map(inline).collect();
            match list.iter().any(Value::is_table) {
                true => format!("[\n    {},\n]", entries.join(",\n    ")),
                false => format!("[{}]", entries.join(", ")),
            }
        }
        other => {
            let mut text = String::new();
            other.serialize(toml::ser::ValueSerializer::new(&mut text)).expect("a scalar is TOML");
            text
        }
    }
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { inline(&Value::String(key.to_owned())) }
}
