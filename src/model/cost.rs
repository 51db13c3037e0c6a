//! What a piece of work costs.

use serde::Serialize;

use super::Measured;
use crate::{
    document::{Diagnostic, FromNode, FromSection, Node, Section, Share, Value, documented, wrong_type},
    units::{ByteCost, Duration, Fraction, PixelCost},
};

documented! {
    /// `(fixed + per_byte·bytes + per_pixel·pixels) · residual`.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Cost {
        /// The same for every piece of work.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fixed: Option<Measured<Duration>>,
        /// Per encoded byte, or per byte moved.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub per_byte: Option<Measured<ByteCost>>,
        /// Per pixel of the full-size image.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub per_pixel: Option<Measured<PixelCost>>,
        /// What the formula leaves open.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub residual: Option<Residual>,
        /// Where the formula as a whole comes from.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub source: Option<String>,
        /// How far its mean may be off: often less than its terms, which a corpus tells apart badly.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub uncertainty: Option<Fraction>,
    }
}

impl Cost {
    /// No cost.
    pub const FREE: Cost = Cost { fixed: None, per_byte: None, per_pixel: None, residual: None, source: None, uncertainty: None };

    /// The mean for work of this size, in nanoseconds.
    pub fn mean_ns(&self, bytes: f64, pixels: f64) -> f64 {
        let fixed = self.fixed.as_ref().map_or(0.0, |m| m.value.base());
        let per_byte = self.per_byte.as_ref().map_or(0.0, |m| m.value.base());
        let per_pixel = self.per_pixel.as_ref().map_or(0.0, |m| m.value.base());
        (fixed + per_byte * bytes + per_pixel * pixels) * self.residual.as_ref().map_or(1.0, Residual::mean)
    }
}

/// Actual over computed cost, as equally spaced quantiles from the least to the largest, with straight lines between.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Residual {
    /// At least one, not decreasing.
    pub quantiles: Vec<Fraction>,
}

impl Residual {
    /// The mean of the factor; 1 for a formula that is right on average.
    pub fn mean(&self) -> f64 {
        let q: Vec<f64> = self.quantiles.iter().map(|f| f.base()).collect();
        match &q[..] {
            [only] => *only,
            all => all.windows(2).map(|w| (w[0] + w[1]) / 2.0).sum::<f64>() / (all.len() - 1) as f64,
        }
    }
}

impl FromNode for Residual {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = r#"quantiles of actual over computed cost that do not decrease, such as ["90 %", "100 %", "115 %"]"#;
        if !matches!(node.value, Value::List(_)) {
            return Err(wrong_type(node, path, expected));
        }
        let quantiles = Vec::<Fraction>::from_node(node, path)?;
        let increasing = quantiles.windows(2).all(|w| w[0] <= w[1]);
        if quantiles.is_empty() || !increasing {
            let what = if increasing { "is empty" } else { "decreases" };
            return Err(Diagnostic::new(format!("`{path}` {what}")).at(Some(&node.place)).expected(expected));
        }
        Ok(Residual { quantiles })
    }

    fn schema() -> serde_json::Value {
        let mut list = Vec::<Fraction>::schema();
        list["minItems"] = 1.into();
        list["description"] = "A list of percentages that do not decrease.".into();
        list["examples"] = serde_json::json!([["90 %", "100 %", "115 %"]]);
        list
    }
}

impl FromSection for Cost {
    const EXPECTED: &'static str = r#"a cost, such as { fixed = "5 µs", per_byte = "0.1 ns/B" }"#;

    fn read(section: &Section<'_>) -> Option<Cost> {
        section.documents(Cost::DOCS);
        Some(Cost {
            fixed: section.plain("fixed"),
            per_byte: section.plain("per_byte"),
            per_pixel: section.plain("per_pixel"),
            residual: section.plain("residual"),
            source: section.plain("source"),
            uncertainty: section.plain::<Share>("uncertainty").map(|s| s.0),
        })
    }
}

documented! {
    /// What a stage of a whole batch costs on the device: `fixed + per_byte·bytes`, of the bytes of the batch as it was copied.
    #[derive(Clone, Debug, Default, PartialEq, Serialize)]
    pub struct KernelCost {
        /// The same for every batch: launching it, and telling of its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fixed: Option<Measured<Duration>>,
        /// Per byte of the batch.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub per_byte: Option<Measured<ByteCost>>,
    }
}

impl FromSection for KernelCost {
    const EXPECTED: &'static str = r#"a cost, such as { fixed = "10 µs", per_byte = "0.002 ns/B" }"#;

    fn read(section: &Section<'_>) -> Option<KernelCost> {
        section.documents(KernelCost::DOCS);
        Some(KernelCost { fixed: section.plain("fixed"), per_byte: section.plain("per_byte") })
    }
}
