//! Handing out a table's fields by name.

use std::{cell::RefCell, rc::Rc};

use super::{
    Diagnostic, Doc, FromNode, Node, Place, Spanned, Table, Trouble, Value,
    sketch::{ANY, Sketch},
    wrong_type,
};
use crate::units::nearest;

/// Where errors are collected.
#[derive(Default)]
pub(crate) struct Errors(RefCell<Vec<Diagnostic>>);

impl Errors {
    /// Takes one more.
    pub(crate) fn push(&self, diagnostic: Diagnostic) {
        self.0.borrow_mut().push(diagnostic);
    }

    /// The value, or the error taken and `None`.
    pub(crate) fn keep<T>(&self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|d| self.push(d)).ok()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// What was collected, when anything was.
    pub(crate) fn into_trouble(self) -> Option<Trouble> {
        Trouble::of(self.0.into_inner())
    }
}

/// A table being read: `[loader]`, or the whole file, whose name is empty.
pub(crate) struct Section<'a> {
    path: String,
    place: Option<Place>,
    table: Option<&'a Table>,
    asked: RefCell<Vec<String>>,
    /// Of a section that nobody wrote, what its reader asks for.
    sketch: Option<Rc<RefCell<Sketch>>>,
    pub(crate) errors: &'a Errors,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn root(table: &'a Table, errors: &'a Errors) -> Section<'a> {
        Section { path: String::new(), place: None, table: Some(table), asked: RefCell::default(), sketch: None, errors }
    }

    /// Reads a node that must be a table; `expected` shows one. `read` gives `None` only after it has reported an error.
    pub(crate) fn of<T>(
        node: &Node,
        path: &str,
        expected: &str,
        read: impl FnOnce(&Section<'_>) -> Option<T>,
    ) -> Result<T, Diagnostic> {
        let Value::Table(table) = &node.value else { return Err(wrong_type(node, path, expected)) };
        let errors = Errors::default();
        let place = Some(node.place.clone());
        let asked = RefCell::default();
        let section = Section { path: path.to_owned(), place, table: Some(table), asked, sketch: None, errors: &errors };
        let value = read(&section);
        section.finish();
        match (errors.0.into_inner().into_iter().next(), value) {
            (None, Some(value)) => Ok(value),
            (Some(first), _) => Err(first),
            (None, None) => unreachable!("`{path}` was not read and nothing said why"),
        }
    }

    /// The JSON Schema of the table that `read` reads.
    pub(crate) fn sketch<T>(read: impl FnOnce(Section<'_>) -> T) -> serde_json::Value {
        let errors = Errors::default();
        let sketch = Rc::<RefCell<Sketch>>::default();
        let noted = Some(Rc::clone(&sketch));
        read(Section {
            path: String::new(),
            place: None,
            table: None,
            asked: RefCell::default(),
            sketch: noted,
            errors: &errors,
        });
        sketch.borrow().schema()
    }

    /// Takes what is said of the fields, for the schema.
    pub(crate) fn documents(&self, docs: &[Doc]) {
        if let Some(sketch) = &self.sketch {
            sketch.borrow_mut().documents(docs);
        }
    }

    /// Whether somebody wrote this field, right or wrong.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.is_some_and(|t| t.fields.contains_key(name))
    }

    /// Its full name.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Where it stands, when it does.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The full name of a field.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn ask(&self, name: &str) -> Option<&'a (Place, Node)> {
        self.asked.borrow_mut().push(name.to_owned());
        self.table?.fields.get(name)
    }

    /// A field; `None` when it is not there, or is wrong and the error taken.
    pub(crate) fn field<T: FromNode>(&self, name: &str) -> Option<Spanned<T>> {
        if let Some(sketch) = &self.sketch {
            sketch.borrow_mut().value(name, T::schema());
        }
        let (_, node) = self.ask(name)?;
        let path = self.path_of(name);
        let value = self.errors.keep(T::from_node(node, &path))?;
        Some(Spanned { value, path, place: node.place.clone() })
    }

    /// A field that must be there.
    pub(crate) fn required<T: FromNode>(&self, name: &str, example: &str) -> Option<T> {
        let before = self.errors.len();
        let value = self.field::<T>(name);
        if value.is_none() && self.errors.len() == before {
            self.missing(name, example);
        }
        value.map(|v| v.value)
    }

    /// The value of a field without its place.
    pub(crate) fn plain<T: FromNode>(&self, name: &str) -> Option<T> {
        self.field(name).map(|s| s.value)
    }

    /// A table inside this one. One that nobody wrote is empty.
    pub(crate) fn section(&self, name: &str) -> Section<'a> {
        let path = self.path_of(name);
        let (place, table) = match self.ask(name) {
            Some((key, node)) => match &node.value {
                Value::Table(table) => (Some(key.clone()), Some(table)),
                _ => {
                    self.errors.push(wrong_type(node, &path, format!("a table: `[{path}]`")));
                    (Some(key.clone()), None)
                }
            },
            None => (self.place.clone(), None),
        };
        let sketch = self.sketch.as_ref().map(|sketch| sketch.borrow_mut().table(name));
        Section { path, place, table, asked: RefCell::default(), sketch, errors: self.errors }
    }

    /// The names of all fields that are there, for a table whose keys are free, such as `[costs]`.
    pub(crate) fn names(&self) -> Vec<&'a str> {
        if self.sketch.is_some() {
            return vec![ANY];
        }
        self.table.map(|t| t.fields.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Says that a field is missing.
    pub(crate) fn missing(&self, name: &str, example: &str) {
        if let Some(sketch) = &self.sketch {
            sketch.borrow_mut().required(name, example);
        }
        let path = self.path_of(name);
        let wrong = Diagnostic::new(format!("`{path}` is missing")).at(self.place.as_ref());
        self.errors.push(wrong.hint(format!("write `{name} = {example}`{}", self.header())));
    }

    fn header(&self) -> String {
        if self.path.is_empty() { " at the top of the file".to_owned() } else { format!(" under `[{}]`", self.path) }
    }

    /// Reports every field that nobody asked for.
    pub(crate) fn finish(self) {
        let asked = self.asked.borrow();
        let Some(table) = self.table else { return };
        for (name, (place, _)) in &table.fields {
            if asked.contains(name) {
                continue;
            }
            let known: Vec<&str> = asked.iter().map(String::as_str).collect();
            let home = if self.path.is_empty() { String::new() } else { format!(" in `[{}]`", self.path) };
            let list: Vec<String> = known.iter().map(|k| format!("`{k}`")).collect();
            let near = nearest(name, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
            let expected = match list.len() {
                0 => "no field".to_owned(),
                1 => list[0].clone(),
                // The hint says it better than a line of twenty names.
                9.. if near.is_some() => String::new(),
                _ => format!("one of {}", list.join(", ")),
            };
            let hint = near.unwrap_or_default();
            self.errors
                .push(Diagnostic::new(format!("unknown field `{name}`{home}")).at(Some(place)).expected(expected).hint(hint));
        }
    }
}

/// What is read from a table.
pub(crate) trait FromSection: Sized {
    /// How one is written, for the error where there is none.
    const EXPECTED: &'static str;

    /// Reads the fields; `None` only after an error was reported.
    fn read(section: &Section<'_>) -> Option<Self>;
}

impl<T: FromSection> FromNode for T {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        Section::of(node, path, T::EXPECTED, T::read)
    }

    fn schema() -> serde_json::Value {
        Section::sketch(|section| T::read(&section))
    }
}

/// Declares a choice between words.
macro_rules! keyword {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$($variant_doc:tt)*])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis enum $name { $($(#[$($variant_doc)*])* $variant,)+ }

        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word that is written for it.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl crate::document::FromNode for $name {
            fn from_node(
                node: &crate::document::Node,
                path: &str,
            ) -> Result<$name, crate::document::Diagnostic> {
                let list: Vec<String> = $name::WORDS.iter().map(|w| format!("{w:?}")).collect();
                let expected = list.join(" or ");
                match &node.value {
                    $(crate::document::Value::Text(text) if text == $word => Ok($name::$variant),)+
                    crate::document::Value::Text(text) => {
                        let near = crate::units::nearest(text, $name::WORDS.iter().copied());
                        let hint = near.map(|w| format!("did you mean {w:?}?")).unwrap_or_default();
                        Err(crate::document::wrong_type(node, path, expected).hint(hint))
                    }
                    _ => Err(crate::document::wrong_type(node, path, expected)),
                }
            }

            fn schema() -> serde_json::Value {
                crate::document::words(&[$(($word, crate::document::doc_of!($(#[$($variant_doc)*])*)),)+])
            }
        }
    };
}

pub(crate) use keyword;
