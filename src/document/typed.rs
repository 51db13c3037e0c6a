//! From a node to a value of a type.

use std::ops::Deref;

use serde_json::{Value as Json, json};

use super::{Diagnostic, Node, Place, Value};
use crate::units::{Count, Dimension, Fraction, Quantity};

/// A value that somebody wrote, with its name and place. Derefs to the value.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The field's full name, such as `loader.batch`.
    pub path: String,
    /// Where it stands.
    pub place: Place,
}

impl<T> Deref for Spanned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Spanned<T> {
    /// An error about this value.
    pub(crate) fn wrong(&self, message: impl std::fmt::Display) -> Diagnostic {
        Diagnostic::new(format!("`{}` {message}", self.path)).at(Some(&self.place))
    }
}

/// What can be read from a node.
pub(crate) trait FromNode: Sized {
    /// Reads the value; `path` is the field's full name, for the error.
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic>;

    /// The JSON Schema of what is read: with a description that names its units, and an example.
    fn schema() -> Json;
}

/// The error of a node of the wrong type.
pub(crate) fn wrong_type(node: &Node, path: &str, expected: impl Into<String>) -> Diagnostic {
    Diagnostic::new(format!("`{path}` is {}", node.value.describe())).at(Some(&node.place)).expected(expected)
}

impl<D: Dimension> FromNode for Quantity<D> {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = format!("{}, such as {:?}", D::WHAT, D::EXAMPLE);
        match &node.value {
            Value::Text(text) => text.parse().map_err(|e: crate::units::UnitError| {
                let place = Some(&node.place);
                Diagnostic::new(format!("`{path}` {}", e.predicate())).at(place).expected(expected).hint(e.hint())
            }),
            Value::Integer(_) | Value::Float(_) => {
                let units: Vec<String> = D::UNITS.iter().map(|u| format!("`{}`", u.symbol)).collect();
                let hint = match &units[..] {
                    [only] => format!("the unit is {only}, in quotes with its number"),
                    _ => format!("the units are {}, in quotes with their number", units.join(", ")),
                };
                Err(wrong_type(node, path, expected).hint(hint))
            }
            _ => Err(wrong_type(node, path, expected)),
        }
    }

    fn schema() -> Json {
        let quoted: Vec<String> = D::UNITS.iter().map(|u| format!("`{}`", u.symbol)).collect();
        let units = if quoted.len() == 1 { "its unit is" } else { "its units are" };
        let description = format!("{}; {units} {}.", capital(D::WHAT), quoted.join(", "));
        let spelled: Vec<&str> =
            D::UNITS.iter().flat_map(|u| std::iter::once(u.symbol).chain(u.aliases.iter().copied())).collect();
        let number = r"\+?_*([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)";
        let pattern = format!(r"^\s*{number}\s*({})\s*$", spelled.join("|"));
        json!({ "type": "string", "pattern": pattern, "description": description, "examples": [D::EXAMPLE] })
    }
}

/// With a capital letter: these descriptions are sentences.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

impl FromNode for Count {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = "a whole number, such as 32 or 1_281_167";
        match node.value {
            Value::Integer(n) if n < 0 => {
                Err(Diagnostic::new(format!("`{path}` is negative")).at(Some(&node.place)).expected(expected))
            }
            Value::Integer(n) => u64::try_from(n).map(Count).map_err(|_| {
                Diagnostic::new(format!("`{path}` is too large"))
                    .at(Some(&node.place))
                    .expected(format!("at most {}", Count(u64::MAX)))
            }),
            Value::Text(ref text) if text.parse::<Count>().is_ok() => {
                Err(wrong_type(node, path, expected).hint(format!("write it without quotes: `{text}`")))
            }
            _ => Err(wrong_type(node, path, expected)),
        }
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 0, "description": "A whole number.", "examples": [32] })
    }
}

impl FromNode for bool {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match node.value {
            Value::Bool(b) => Ok(b),
            _ => Err(wrong_type(node, path, "`true` or `false`")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "boolean", "description": "`true` or `false`.", "examples": [true] })
    }
}

impl FromNode for String {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match &node.value {
            Value::Text(text) if text.trim().is_empty() => Err(wrong_type(node, path, "some words in quotes")),
            Value::Text(text) => Ok(text.clone()),
            _ => Err(wrong_type(node, path, "a text in quotes")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": r"\S", "description": "A text.", "examples": ["in your own words"] })
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match &node.value {
            Value::List(list) => list.iter().enumerate().map(|(i, n)| T::from_node(n, &format!("{path}[{i}]"))).collect(),
            _ => Err(wrong_type(node, path, "a list")),
        }
    }

    fn schema() -> Json {
        let item = T::schema();
        // A table's fields have examples of their own.
        let examples: Vec<Json> = item["examples"].as_array().map(|all| vec![json!(all)]).unwrap_or_default();
        let mut list = json!({ "type": "array", "description": "A list.", "items": item });
        if !examples.is_empty() {
            list["examples"] = json!(examples);
        }
        list
    }
}

/// A value above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Positive<T>(pub(crate) T);

impl FromNode for Positive<Count> {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match Count::from_node(node, path)? {
            Count(0) => Err(Diagnostic::new(format!("`{path}` is zero")).at(Some(&node.place)).expected("at least 1")),
            count => Ok(Positive(count)),
        }
    }

    fn schema() -> Json {
        let mut count = Count::schema();
        count["minimum"] = json!(1);
        count["description"] = json!("A whole number, at least 1.");
        count
    }
}

impl<D: Dimension> FromNode for Positive<Quantity<D>> {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let quantity = Quantity::<D>::from_node(node, path)?;
        if quantity.is_zero() {
            let expected = format!("more than zero, such as {:?}", D::EXAMPLE);
            return Err(Diagnostic::new(format!("`{path}` is zero")).at(Some(&node.place)).expected(expected));
        }
        Ok(Positive(quantity))
    }

    fn schema() -> Json {
        let mut quantity = Quantity::<D>::schema();
        // No unit has a digit in its name.
        quantity["allOf"] = json!([{ "pattern": "[1-9]" }]);
        let description = quantity["description"].as_str().map(|said| format!("{said} More than zero.")).unwrap_or_default();
        quantity["description"] = json!(description);
        quantity
    }
}

/// A percentage from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) Fraction);

impl FromNode for Share {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let fraction = Fraction::from_node(node, path)?;
        if fraction.base() > 1.0 {
            let wrong = Diagnostic::new(format!("`{path}` is more than the whole"));
            return Err(wrong.at(Some(&node.place)).expected("a percentage from 0 % to 100 %"));
        }
        Ok(Share(fraction))
    }

    fn schema() -> Json {
        let number = r"\+?[0_]*(1_*0_*0_*(\.[0_]*)?|[0-9]_*([0-9]_*)?(\.[0-9_]*)?|\.[0-9][0-9_]*)";
        let pattern = format!(r"^\s*{number}\s*%\s*$");
        let description = "A percentage from `0 %` to `100 %`.";
        json!({ "type": "string", "pattern": pattern, "description": description, "examples": ["10 %"] })
    }
}
