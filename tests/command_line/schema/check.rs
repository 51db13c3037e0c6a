//! As much of JSON Schema as the schemas use. A keyword that is not known here is an error, so that nothing goes unchecked.

use std::{cell::RefCell, collections::BTreeMap};

use regex_lite::Regex;
use serde_json::Value;

/// Everything in `value` that is not as `schema` says, each with its path.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let Value::Object(keywords) = schema else {
        assert!(schema.is_boolean(), "{schema} is no schema");
        if schema == &Value::Bool(false) {
            found.push(format!("`{path}` is unknown"));
        }
        return;
    };
    for (keyword, wanted) in keywords {
        let number = || wanted.as_f64().unwrap();
        let list = || wanted.as_array().unwrap();
        let holds = match keyword.as_str() {
            "$schema" | "title" | "description" => {
                assert!(wanted.is_string(), "`{path}` has {wanted} as its {keyword}");
                true
            }
            "examples" => {
                assert!(wanted.is_array(), "`{path}` has {wanted} as its examples");
                true
            }
            "type" => is_of(wanted.as_str().unwrap(), value),
            "enum" => list().contains(value),
            "pattern" => value.as_str().is_none_or(|text| matches(wanted.as_str().unwrap(), text)),
            "minimum" => value.as_f64().is_none_or(|n| n >= number()),
            "maximum" => value.as_f64().is_none_or(|n| n <= number()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as f64 >= number()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as f64 <= number()),
            "minProperties" => value.as_object().is_none_or(|fields| fields.len() as f64 >= number()),
            "anyOf" => list().iter().any(|way| faults(way, value).is_empty()),
            "allOf" => list().iter().all(|part| faults(part, value).is_empty()),
            "required" => {
                let missing = |name: &&Value| value.is_object() && value.get(name.as_str().unwrap()).is_none();
                found.extend(list().iter().filter(missing).map(|name| format!("`{path}` has no {name}")));
                true
            }
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                items.for_each(|(i, item)| check(wanted, item, &format!("{path}[{i}]"), found));
                true
            }
            "properties" => {
                for (name, field) in wanted.as_object().unwrap() {
                    value.get(name).into_iter().for_each(|value| check(field, value, &under(path, name), found));
                }
                true
            }
            "additionalProperties" => {
                let others =
                    value.as_object().into_iter().flatten().filter(|(name, _)| schema["properties"].get(name.as_str()).is_none());
                others.for_each(|(name, value)| check(wanted, value, &under(path, name), found));
                true
            }
            _ => panic!("`{keyword}` is not known here"),
        };
        if !holds {
            found.push(format!("`{path}` is {value}, against its {keyword}"));
        }
    }
}

thread_local! {
    /// Patterns that were met: compiling one takes longer than a hundred matches.
    static PATTERNS: RefCell<BTreeMap<String, Regex>> = const { RefCell::new(BTreeMap::new()) };
}

fn matches(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|known| {
        if !known.contains_key(pattern) {
            known.insert(pattern.to_owned(), Regex::new(pattern).unwrap());
        }
        known[pattern].is_match(text)
    })
}

fn under(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => panic!("`{kind}` is not known here"),
    }
}
