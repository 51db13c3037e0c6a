//! YAML as the same tree: for what others wrote, such as the workloads of another benchmark.

use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::{Diagnostic, Document, Node, Place, Source, Table, Value};

/// The deepest that tables and lists may lie in each other: the tree is walked, and dropped, by recursion.
const DEEPEST: usize = 32;

impl Document {
    /// Reads a YAML text whose top is a mapping. A plain `true`, `12` or `0.5` is a flag or a number, as YAML 1.2 has it; a field without
    /// a value is as good as none.
    ///
    /// Left out, and refused: aliases, keys that are no words, more than one document.
    pub(crate) fn parse_yaml(source: &Arc<Source>) -> Result<Document, Diagnostic> {
        let offsets = Offsets::of(source);
        let mut open: Vec<Open> = Vec::new();
        let mut root = None;
        for event in Parser::new_from_str(source.text()) {
            let (event, span) = event.map_err(|e| syntax(&e, &offsets))?;
            let place = offsets.place(span);
            let refuse = |what: &str| Diagnostic::new(format!("{what} cannot be read here")).at(Some(&place));
            let done = match event {
                Event::Alias(_) => return Err(refuse("an alias").hint("write out what it stands for")),
                Event::DocumentStart(_) if root.is_some() => return Err(refuse("a second document")),
                Event::MappingStart(..) | Event::SequenceStart(..) if open.len() >= DEEPEST => {
                    return Err(refuse("a list or mapping this deep"));
                }
                Event::MappingStart(..) => {
                    open.push(Open { place, key: None, inside: Inside::Table(Table::default()) });
                    continue;
                }
                Event::SequenceStart(..) => {
                    open.push(Open { place, key: None, inside: Inside::List(Vec::new()) });
                    continue;
                }
                Event::Scalar(text, style, ..) => match open.last_mut() {
                    Some(Open { key: key @ None, inside: Inside::Table(_), .. }) => {
                        *key = Some((text.into_owned(), place));
                        continue;
                    }
                    _ => Some(Node { place, value: scalar(&text, style) }),
                },
                Event::MappingEnd | Event::SequenceEnd => open.pop().map(Open::close),
                _ => None,
            };
            let Some(node) = done else { continue };
            match open.last_mut() {
                None => root = Some(node),
                Some(outer) => outer.take(node)?,
            }
        }
        match root {
            Some(Node { value: Value::Table(root), .. }) => Ok(Document { root }),
            other => {
                let wrong = Diagnostic::new(format!("`{}` is no YAML mapping", source.name()));
                Err(wrong
                    .at(other.map(|node| node.place).as_ref())
                    .expected("sections with fields: `reader:`, and under it `batch_size: 7`"))
            }
        }
    }
}

/// A mapping or a list whose end has not come.
struct Open {
    place: Place,
    /// The key whose value comes next.
    key: Option<(String, Place)>,
    inside: Inside,
}

enum Inside {
    Table(Table),
    List(Vec<Node>),
}

impl Open {
    fn take(&mut self, node: Node) -> Result<(), Diagnostic> {
        match &mut self.inside {
            Inside::List(list) => list.push(node),
            Inside::Table(table) => {
                let Some((key, place)) = self.key.take() else {
                    return Err(Diagnostic::new("a key is no word").at(Some(&node.place)));
                };
                if table.fields.contains_key(&key) {
                    return Err(Diagnostic::new(format!("`{key}` is there twice")).at(Some(&place)));
                }
                let missing = matches!(&node.value, Value::Text(text) if text.is_empty());
                if !missing {
                    table.fields.insert(key, (place, node));
                }
            }
        }
        Ok(())
    }

    fn close(self) -> Node {
        let value = match self.inside {
            Inside::Table(table) => Value::Table(table),
            Inside::List(list) => Value::List(list),
        };
        Node { place: self.place, value }
    }
}

/// What a scalar says, by the core schema.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::Text(text.to_owned());
    }
    match text {
        "~" | "null" | "Null" | "NULL" => Value::Text(String::new()),
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        // Rust's `inf` and `nan` are words in YAML.
        _ if !text.contains(|c: char| c.is_ascii_digit()) => Value::Text(text.to_owned()),
        _ => match (text.parse(), text.parse()) {
            (Ok(whole), _) => Value::Integer(whole),
            (_, Ok(number)) => Value::Float(number),
            _ => Value::Text(text.to_owned()),
        },
    }
}

fn syntax(error: &ScanError, offsets: &Offsets) -> Diagnostic {
    let place = offsets.place(Span::new(*error.marker(), *error.marker()));
    Diagnostic::new(format!("`{}` is not YAML: {}", offsets.source.name(), error.info())).at(Some(&place))
}

/// From characters, in which the parser counts, to bytes.
struct Offsets {
    source: Arc<Source>,
    /// Of each character; `None` where a character is a byte.
    bytes: Option<Vec<usize>>,
}

impl Offsets {
    fn of(source: &Arc<Source>) -> Offsets {
        let text = source.text();
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Offsets { source: source.clone(), bytes }
    }

    fn at(&self, character: usize) -> usize {
        let end = self.source.text().len();
        self.bytes.as_ref().map_or(character.min(end), |bytes| bytes.get(character).copied().unwrap_or(end))
    }

    fn place(&self, span: Span) -> Place {
        let start = self.at(span.start.index());
        Place::new(&self.source, start..self.at(span.end.index()).max(start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Document, Diagnostic> {
        Document::parse_yaml(&Source::file("work.yaml", text))
    }

    #[test]
    fn scalars_are_what_they_look_like_and_know_their_place() {
        let text =
            "# größe\nreader:\n  batch_size: 7\n  au: 0.9\n  big: 1e3\n  on: True\n  quoted: '7'\n  none:\n  list: [1, x]\n";
        let document = read(text).unwrap();
        let Value::Table(reader) = &document.root.fields["reader"].1.value else { panic!("a mapping") };
        let of = |name: &str| &reader.fields[name].1.value;
        assert!(matches!(of("batch_size"), Value::Integer(7)) && matches!(of("au"), Value::Float(x) if *x == 0.9));
        assert!(matches!(of("big"), Value::Float(x) if *x == 1000.0) && matches!(of("on"), Value::Bool(true)));
        assert!(
            matches!(of("quoted"), Value::Text(text) if text == "7")
                && matches!(of("list"), Value::List(list) if list.len() == 2)
        );
        assert!(!reader.fields.contains_key("none"));
        assert_eq!(reader.fields["batch_size"].1.place.line_and_column(), (3, 15));
    }

    #[test]
    fn what_cannot_be_read_is_refused_where_it_stands() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        insta::assert_snapshot!(error("a: 1\na: 2\n"), @"
        error: `a` is there twice
         --> work.yaml:2:1
          |
        2 | a: 2
          | ^
        ");
        assert!(error("a: &x 1\nb: *x\n").contains("work.yaml:2:4"));
        assert!(error("a:\n  - b\n c: [1\n").contains("is not YAML"));
        assert!(error("- 1\n").contains("is no YAML mapping") && error("").contains("is no YAML mapping"));
        assert!(error(&format!("a: {}", "[".repeat(100))).contains("this deep"));
        assert!(error("? [1]\n: 2\n").contains("work.yaml:1"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-c:\\-\\[\\]{}&*?|>'\"#\n µ0-9.]{0,60}") {
            if let Err(e) = read(&text) {
                let _ = e.to_string();
            }
        }
    }
}
