//! What a reader reads, as a JSON Schema.
//!
//! There is no list of fields beside the readers. A reader is run once on a section that nobody wrote, and the section notes what it is
//! asked for: each name with the schema of its type, and which ones are missed. So a schema cannot differ from what is read. Words come
//! from the comments on the fields, which [`documented`] and the scenario's tables keep.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::{Value as Json, json};

/// What is said of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doc {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its comment, as it stands in the code.
    pub(crate) text: &'static str,
    /// A value, as it is written in TOML, where its type's example says too little.
    pub(crate) example: Option<&'static str>,
}

/// A table as its reader asks for it.
#[derive(Default)]
pub(crate) struct Sketch {
    docs: BTreeMap<&'static str, Doc>,
    fields: BTreeMap<String, Field>,
    /// Fields that must be there, and how one is written.
    required: BTreeMap<String, String>,
}

enum Field {
    /// A value, by the schema of its type.
    Value(Json),
    /// A table that the same reader reads.
    Table(Rc<RefCell<Sketch>>),
}

/// The name by which a table whose keys are free is asked for any of them.
pub(crate) const ANY: &str = "*";

impl Sketch {
    /// Takes what is said of the fields.
    pub(crate) fn documents(&mut self, docs: &[Doc]) {
        self.docs.extend(docs.iter().map(|doc| (doc.name, *doc)));
    }

    /// A value was asked for.
    pub(crate) fn value(&mut self, name: &str, schema: Json) {
        self.fields.insert(name.to_owned(), Field::Value(schema));
    }

    /// A table was asked for, and will be asked.
    pub(crate) fn table(&mut self, name: &str) -> Rc<RefCell<Sketch>> {
        let table = Rc::<RefCell<Sketch>>::default();
        self.fields.insert(name.to_owned(), Field::Table(Rc::clone(&table)));
        table
    }

    /// A field was missed.
    pub(crate) fn required(&mut self, name: &str, example: &str) {
        self.required.insert(name.to_owned(), example.to_owned());
    }

    /// The schema of the table.
    pub(crate) fn schema(&self) -> Json {
        let mut properties = serde_json::Map::new();
        let mut others = json!(false);
        for (name, field) in &self.fields {
            let mut schema = match field {
                Field::Value(schema) => schema.clone(),
                Field::Table(table) => table.borrow().schema(),
            };
            if name == ANY {
                others = schema;
                continue;
            }
            let doc = self.docs.get(name.as_str());
            let of_type = schema["description"].as_str().map(str::to_owned);
            let said = doc.map(|doc| plain(doc.text)).into_iter().chain(of_type).collect::<Vec<_>>().join(" ");
            schema["description"] = json!(said);
            let example = doc.and_then(|doc| doc.example).or(self.required.get(name).map(String::as_str));
            if let Some(example) = example.and_then(from_toml) {
                schema["examples"] = json!([example]);
            }
            properties.insert(name.clone(), schema);
        }
        let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": others });
        if !self.required.is_empty() {
            schema["required"] = self.required.keys().cloned().collect();
        }
        schema
    }
}

/// The schema of a whole file.
pub(crate) fn whole(title: &str, description: &str, mut table: Json) -> Json {
    table["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    table["title"] = json!(title);
    table["description"] = json!(description);
    table
}

/// The schema of a choice between words, each with its comment.
pub(crate) fn words(words: &[(&str, &str)]) -> Json {
    let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let meanings: Vec<String> = words.iter().map(|(word, comment)| format!("{word:?}: {}", plain(comment))).collect();
    json!({ "type": "string", "enum": list, "description": meanings.join(" "), "examples": [list.first()] })
}

/// A value written in TOML; `None` for what only shows the shape of one, such as `{ … }`.
fn from_toml(text: &str) -> Option<Json> {
    let table: toml::Table = format!("x = {text}").parse().ok()?;
    serde_json::to_value(table.get("x")?).ok()
}

/// A comment without what is meant for readers of the code: line ends, and where links lead.
fn plain(comment: &str) -> String {
    let line = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut said = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some((before, link)) = rest.split_once('[') {
        said.push_str(before);
        let (name, after) = link.split_once(']').unwrap_or((link, ""));
        said.push_str(name);
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').map_or("", |(_, after)| after),
            None => after,
        };
    }
    said.push_str(rest);
    said
}

/// The comment among a field's attributes.
macro_rules! doc_of {
    () => { "" };
    (#[doc = $doc:literal] $($rest:tt)*) => { concat!($doc, "\n", $crate::document::doc_of!($($rest)*)) };
    (#[$($other:tt)*] $($rest:tt)*) => { $crate::document::doc_of!($($rest)*) };
}

/// Declares a struct and keeps the comments on its fields for the schema, as `DOCS`.
macro_rules! documented {
    ($(#[$($attribute:tt)*])* $vis:vis struct $name:ident $(<$parameter:ident>)? {
        $($(#[$($field_attribute:tt)*])* $field_vis:vis $field:ident: $type:ty,)+
    }) => {
        $(#[$($attribute)*])*
        $vis struct $name $(<$parameter>)? {
            $($(#[$($field_attribute)*])* $field_vis $field: $type,)+
        }

        impl $(<$parameter>)? $name $(<$parameter>)? {
            /// What is said of the fields.
            pub(crate) const DOCS: &'static [$crate::document::Doc] = &[$($crate::document::Doc {
                name: stringify!($field),
                text: $crate::document::doc_of!($(#[$($field_attribute)*])*),
                example: None,
            },)+];
        }
    };
}

pub(crate) use {doc_of, documented};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_lose_their_links_and_line_ends() {
        assert_eq!(
            plain(" Beyond, reads wait, unlike [`requests`](Store::requests).\n See [there].\n"),
            "Beyond, reads wait, unlike `requests`. See there."
        );
        assert_eq!(from_toml("1_281_167"), Some(json!(1_281_167)));
        assert_eq!(from_toml("{ decode = \"12 %\" }"), Some(json!({ "decode": "12 %" })));
        assert_eq!(from_toml("{ … }"), None);
    }
}
