//! A number of which one knows where it comes from.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    document::{Diagnostic, FromNode, Node, Section, Share, Value, documented},
    units::Fraction,
};

documented! {
    /// A value, where it comes from, and how far it may be off.
    ///
    /// In a file either the value alone, or `{ value = "1.2 ms", source = "measured here", uncertainty = "10 %" }`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Measured<T> {
        /// The value.
        pub value: T,
        /// Where it comes from: a publication, a measurement, a derivation.
        pub source: Option<String>,
        /// One standard deviation, relative to the value.
        pub uncertainty: Option<Fraction>,
    }
}

impl<T> Measured<T> {
    /// A value that comes from nowhere in particular.
    pub fn plain(value: T) -> Measured<T> {
        Measured { value, source: None, uncertainty: None }
    }

    /// A value with its source and relative uncertainty.
    pub fn new(value: T, source: impl Into<String>, uncertainty: Fraction) -> Measured<T> {
        Measured { value, source: Some(source.into()), uncertainty: Some(uncertainty) }
    }
}

impl<T: FromNode> FromNode for Measured<T> {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        if !matches!(node.value, Value::Table(_)) {
            return T::from_node(node, path).map(Measured::plain);
        }
        Section::of(node, path, "a value", read_table)
    }

    fn schema() -> serde_json::Value {
        let schema = T::schema();
        let said = schema["description"].as_str().unwrap_or_default();
        let description = format!("{said} Or a table with `value`, `source` and `uncertainty`.");
        let examples = schema["examples"].clone();
        let table = Section::sketch(|section| read_table::<T>(&section));
        serde_json::json!({ "anyOf": [schema, table], "description": description, "examples": examples })
    }
}

fn read_table<T: FromNode>(section: &Section<'_>) -> Option<Measured<T>> {
    section.documents(Measured::<T>::DOCS);
    let value = section.required("value", "…");
    let source = section.plain("source");
    let uncertainty = section.plain::<Share>("uncertainty").map(|u| u.0);
    Some(Measured { value: value?, source, uncertainty })
}

impl<T: Serialize> Serialize for Measured<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.source.is_none() && self.uncertainty.is_none() {
            return self.value.serialize(serializer);
        }
        let fields = 1 + usize::from(self.source.is_some()) + usize::from(self.uncertainty.is_some());
        let mut map = serializer.serialize_struct("Measured", fields)?;
        map.serialize_field("value", &self.value)?;
        if let Some(source) = &self.source {
            map.serialize_field("source", source)?;
        }
        if let Some(uncertainty) = &self.uncertainty {
            map.serialize_field("uncertainty", uncertainty)?;
        }
        map.end()
    }
}
