//! A dataset that exists only as numbers.

use serde::Serialize;

use super::{Measured, store::above_zero};
use crate::{
    document::{Diagnostic, FromNode, Node, Positive, Section, documented, keyword, wrong_type},
    units::{Count, Size},
};

documented! {
    /// How many samples there are, and how large.
    ///
    /// Encoded sizes are lognormal; an image has so many pixels for each encoded byte.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct DatasetModel {
        /// What it is, in a few words.
        pub title: String,
        /// Samples.
        pub count: Measured<Count>,
        /// Mean encoded size.
        pub bytes: Measured<Size>,
        /// Standard deviation of the logarithm of the encoded size.
        pub sigma: Measured<Ratio>,
        /// Mean pixels of an image.
        pub pixels: Measured<Count>,
        /// How pixels go with bytes.
        pub pixels_by: PixelModel,
        /// The largest encoded size that a loader has to reckon with.
        pub largest: Measured<Size>,
    }
}

keyword! {
    /// How the pixels of a sample go with its bytes.
    pub enum PixelModel {
        /// In proportion: a file twice as long is an image twice as large.
        Bytes = "bytes",
        /// Not at all: every image has the mean.
        Constant = "constant",
    }
}

/// A plain number that is not negative.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Ratio(pub f64);

impl FromNode for Ratio {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        use crate::document::Value::{Float, Integer};
        let number = match node.value {
            Float(x) => x,
            Integer(n) => n as f64,
            _ => return Err(wrong_type(node, path, "a number, such as 0.55")),
        };
        if !number.is_finite() || number < 0.0 {
            return Err(wrong_type(node, path, "a number that is not negative, such as 0.55"));
        }
        Ok(Ratio(number))
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "number", "minimum": 0, "description": "A number that is not negative.", "examples": [0.55] })
    }
}

impl DatasetModel {
    /// So many records with this mean and standard deviation, which are read and not decoded: in memory they are as large as they are.
    pub fn records(count: Count, bytes: Size, deviation: Size) -> DatasetModel {
        let (mean, spread) = (bytes.as_bytes().max(1), deviation.as_bytes());
        // Of a lognormal distribution: its variance over the square of its mean is exp(σ²) − 1.
        let sigma = (1.0 + (spread as f64 / mean as f64).powi(2)).ln().sqrt();
        DatasetModel {
            title: format!("records of {bytes}"),
            count: Measured::plain(count),
            bytes: Measured::plain(bytes),
            sigma: Measured::plain(Ratio(sigma)),
            pixels: Measured::plain(Count(mean / 3)),
            pixels_by: PixelModel::Bytes,
            largest: Measured::plain(bytes),
        }
    }

    pub(super) fn read(section: Section<'_>) -> Option<DatasetModel> {
        section.documents(DatasetModel::DOCS);
        let title = section.required("title", "\"what dataset this is\"");
        let count = section.required::<Measured<Positive<Count>>>("count", "1_281_167");
        let bytes = section.required::<Measured<Positive<Size>>>("bytes", "\"114.66 kB\"");
        let sigma = section.required("sigma", "0.55");
        let pixels = section.required("pixels", "181_503");
        let pixels_by = section.plain("pixels_by").unwrap_or(PixelModel::Bytes);
        let largest = section.required::<Measured<Positive<Size>>>("largest", "\"1 MiB\"");
        section.finish();
        Some(DatasetModel {
            title: title?,
            count: above_zero(count)?,
            bytes: above_zero(bytes)?,
            sigma: sigma?,
            pixels: pixels?,
            pixels_by,
            largest: above_zero(largest)?,
        })
    }
}
