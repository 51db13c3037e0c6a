//! The tree that a text becomes.

use std::{collections::BTreeMap, sync::Arc};

use toml::{
    Spanned as TomlSpanned,
    de::{DeTable, DeValue},
};

use super::{Diagnostic, Place, Source};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What stands there.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i128),
    Float(f64),
    Bool(bool),
    Date(String),
    List(Vec<Node>),
    Table(Table),
}

impl Value {
    /// What an error calls it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Text(text) => format!("the text {text:?}"),
            Value::Integer(n) => format!("the number {n}"),
            Value::Float(x) => format!("the number {x}"),
            Value::Bool(b) => format!("`{b}`"),
            Value::Date(date) => format!("the date {date}"),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

/// Fields by name, each with the place of its key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) fields: BTreeMap<String, (Place, Node)>,
}

/// A whole text, with flags laid over it.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) root: Table,
}

/// The most names in a path.
const DEEPEST: usize = 32;

/// As much of a long path as fits into a message.
fn path_start(path: &str) -> &str {
    path.char_indices().nth(40).map_or(path, |(end, _)| &path[..end])
}

impl Document {
    /// Reads a TOML text.
    pub(crate) fn parse(source: &Arc<Source>) -> Result<Document, Diagnostic> {
        let table = DeTable::parse(source.text()).map_err(|e| syntax(&e, source, 0))?;
        Ok(Document { root: table_of(table.into_inner(), source, 0) })
    }

    /// Lays `path.to.field=value` over the tree. `value` is TOML, or else taken as text: `step=50 ms` needs no quotes.
    pub(crate) fn set(&mut self, flag: &Arc<Source>) -> Result<(), Diagnostic> {
        let text = flag.text();
        let whole = Place::new(flag, 0..text.len());
        let wanted = || Diagnostic::new(format!("`{} {text}` does not say which field to set", flag.name())).at(Some(&whole));
        let wanted = || wanted().expected("`path.to.field=value`, such as `loader.batch=32` or `consumer.step=50 ms`");
        let (path, value) = text.split_once('=').ok_or_else(wanted)?;
        if path.split('.').any(|part| part.trim().is_empty()) {
            return Err(wanted());
        }
        // The tree is walked, and dropped, by recursion.
        if path.split('.').count() > DEEPEST {
            return Err(Diagnostic::new(format!("`{} {}…` goes deeper than any field does", flag.name(), path_start(path)))
                .expected("`path.to.field=value`, such as `loader.batch=32` or `consumer.step=50 ms`"));
        }
        let start = path.len() + 1;
        let lead = value.len() - value.trim_start().len();
        let trimmed = value.trim();
        let parsed = match DeValue::parse(trimmed) {
            Ok(node) => node_of(node, flag, start + lead),
            Err(_) => {
                let span = start + lead..start + lead + trimmed.len();
                Node { place: Place::new(flag, span), value: Value::Text(trimmed.to_owned()) }
            }
        };
        self.insert(path, parsed, flag)
    }

    fn insert(&mut self, path: &str, node: Node, flag: &Arc<Source>) -> Result<(), Diagnostic> {
        let parts: Vec<&str> = path.split('.').collect();
        let (last, parents) = parts.split_last().expect("a split has at least one part");
        let mut table = &mut self.root;
        let mut at = 0;
        for (depth, part) in parents.iter().enumerate() {
            let place = Place::new(flag, at..at + part.len());
            at += part.len() + 1;
            let fresh = || (place.clone(), Node { place: place.clone(), value: Value::Table(Table::default()) });
            let (_, child) = table.fields.entry(part.trim().to_owned()).or_insert_with(fresh);
            table = match &mut child.value {
                Value::Table(inner) => inner,
                other => {
                    let name = parents[..=depth].join(".");
                    let message = format!("`{name}` is {}, not a table: `{path}` cannot be set", other.describe());
                    return Err(Diagnostic::new(message).at(Some(&place)));
                }
            };
        }
        table.fields.insert(last.trim().to_owned(), (Place::new(flag, at..at + last.len()), node));
        Ok(())
    }
}

fn syntax(error: &toml::de::Error, source: &Arc<Source>, offset: usize) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().trim_end();
    let place = Place::new(source, span.start + offset..span.end + offset);
    Diagnostic::new(format!("`{}` is not TOML: {message}", source.name())).at(Some(&place))
}

fn table_of(table: DeTable<'_>, source: &Arc<Source>, offset: usize) -> Table {
    let field = |(key, value): (TomlSpanned<_>, TomlSpanned<DeValue<'_>>)| {
        let span = key.span();
        let place = Place::new(source, span.start + offset..span.end + offset);
        let name: std::borrow::Cow<'_, str> = key.into_inner();
        (name.into_owned(), (place, node_of(value, source, offset)))
    };
    Table { fields: table.into_iter().map(field).collect() }
}

fn node_of(node: TomlSpanned<DeValue<'_>>, source: &Arc<Source>, offset: usize) -> Node {
    let span = node.span();
    let place = Place::new(source, span.start + offset..span.end + offset);
    let value = match node.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(n) => match i128::from_str_radix(&n.as_str().replace('_', ""), n.radix()) {
            Ok(n) => Value::Integer(n),
            // More digits than 128 bits hold: as good as any number that is too large for its field.
            Err(_) => Value::Integer(i128::MAX),
        },
        // The parser has checked the syntax, and every TOML float is one of Rust's once its underscores are gone.
        DeValue::Float(x) => Value::Float(x.as_str().replace('_', "").parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(b) => Value::Bool(b),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(list) => Value::List(list.into_iter().map(|n| node_of(n, source, offset)).collect()),
        DeValue::Table(table) => Value::Table(table_of(table, source, offset)),
    };
    Node { place, value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> Document {
        Document::parse(&Source::file("test.toml", text)).unwrap()
    }

    fn at<'a>(document: &'a Document, path: &str) -> &'a Node {
        let mut table = &document.root;
        let mut parts = path.split('.').peekable();
        loop {
            let node = &table.fields[parts.next().unwrap()].1;
            match (&node.value, parts.peek()) {
                (Value::Table(inner), Some(_)) => table = inner,
                _ => return node,
            }
        }
    }

    #[test]
    fn every_value_knows_its_place() {
        let document = document("seed = 1\n[loader]\nbatch = 0x20\nlimits = { read = 4 }\n");
        assert_eq!(at(&document, "loader.batch").place.line_and_column(), (3, 9));
        assert_eq!(at(&document, "loader.limits.read").place.line_and_column(), (4, 19));
        assert!(matches!(at(&document, "loader.batch").value, Value::Integer(32)));
    }

    #[test]
    fn a_flag_replaces_a_field_and_may_leave_out_quotes() {
        let mut document = document("[consumer]\nstep = \"10 ms\"\n");
        for flag in ["consumer.step=50 ms", "loader.batch=1_000", "loader.order = plan", "expect.throughput.min=\"9 samples/s\""]
        {
            document.set(&Source::flag("--set", flag)).unwrap();
        }
        assert!(matches!(&at(&document, "consumer.step").value, Value::Text(t) if t == "50 ms"));
        assert!(matches!(at(&document, "loader.batch").value, Value::Integer(1000)));
        assert!(matches!(&at(&document, "loader.order").value, Value::Text(t) if t == "plan"));
        assert!(matches!(&at(&document, "expect.throughput.min").value, Value::Text(t) if t == "9 samples/s"));
    }

    #[test]
    fn a_flag_with_thousands_of_names_is_refused_and_not_walked() {
        let flag = format!("{}=1", vec!["a"; 60_000].join("."));
        let error = document("seed = 1").set(&Source::flag("--set", flag)).unwrap_err().to_string();
        assert!(error.contains("goes deeper than any field does") && error.len() < 400, "{error}");
    }

    #[test]
    fn a_flag_that_sets_nothing_says_how() {
        let mut document = document("seed = 1");
        let mut error = |flag: &str| document.set(&Source::flag("--set", flag)).unwrap_err().to_string();
        insta::assert_snapshot!(error("loader.batch"), @"
        error: `--set loader.batch` does not say which field to set
         --> --set
          |
          | loader.batch
          | ^^^^^^^^^^^^ expected `path.to.field=value`, such as `loader.batch=32` or `consumer.step=50 ms`
        ");
        insta::assert_snapshot!(error("seed.deep=2"), @"
        error: `seed` is the number 1, not a table: `seed.deep` cannot be set
         --> --set
          |
          | seed.deep=2
          | ^^^^
        ");
    }

    #[test]
    fn a_syntax_error_points_at_its_character() {
        let error = Document::parse(&Source::file("odd.toml", "seed = 1\n[loader\nbatch = 2\n")).unwrap_err().to_string();
        insta::assert_snapshot!(error, @"
        error: `odd.toml` is not TOML: unclosed table, expected `]`
         --> odd.toml:2:8
          |
        2 | [loader
          |        ^
        ");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,60}", flag in "[a-c.=\\[\\]{}\"' µ0-9_-]{0,20}") {
            if let Err(e) = Document::parse(&Source::file("any", text)) {
                let _ = e.to_string();
            }
            if let Err(e) = document("a = 1\n[b]\nc = [2]").set(&Source::flag("--set", flag)) {
                let _ = e.to_string();
            }
        }
    }
}
