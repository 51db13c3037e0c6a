//! What reading costs, by kind of store.

use serde::Serialize;

use super::{Cost, Measured};
use crate::{
    document::{Diagnostic, Doc, FromNode, FromSection, Node, Positive, Section, Share, Value, documented, keyword},
    units::{ByteRate, Count, Duration, Fraction, RequestRate, Size},
};

keyword! {
    /// Which threads read.
    pub enum Reader {
        /// The pool's: files in the page cache.
        Pool = "pool",
        /// Threads or connections of their own: a disk, a remote store.
        Own = "own",
    }
}

documented! {
    /// A store.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Store {
        /// Which threads read.
        pub reader: Reader,
        /// From the request to its first byte.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub first_byte: Option<Latency>,
        /// The most that one read gets.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub per_connection: Option<Measured<ByteRate>>,
        /// What all reads share.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bandwidth: Option<Measured<ByteRate>>,
        /// The most reads at a time: connections, or a disk's queue depth.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub connections: Option<Measured<Count>>,
        /// Requests beyond this rate are throttled.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub requests: Option<Measured<RequestRate>>,
        /// Requests that an idle store takes at once before the rate counts; one second's worth when left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub burst: Option<Measured<Count>>,
        /// Of a disk: reads take whole blocks of this size from it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub block: Option<Measured<Size>>,
        /// Of a disk: the most requests a second. Beyond, reads wait, unlike those beyond [`requests`](Store::requests).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub iops: Option<Measured<RequestRate>>,
        /// Of a disk: the most that one request reads; a longer read counts as several in `iops`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub request: Option<Measured<Size>>,
        /// Of a hard disk: a whole turn of the platter, of which a read waits for any part beside `first_byte`, which is then its seek.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rotation: Option<Measured<Duration>>,
        /// Of a disk: the part of all reads that the page cache answers, at the cost of the processor alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cached: Option<Measured<Fraction>>,
        /// CPU time of a read: system calls, copying, checksums, decryption.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cost: Option<Cost>,
    }
}

impl Store {
    /// A store that is free, instantaneous and without bound.
    pub const fn plain(reader: Reader) -> Store {
        Store {
            reader,
            first_byte: None,
            per_connection: None,
            bandwidth: None,
            connections: None,
            requests: None,
            burst: None,
            block: None,
            iops: None,
            request: None,
            rotation: None,
            cached: None,
            cost: None,
        }
    }
}

/// A latency: always the same, or a table of published quantiles with straight lines between.
#[derive(Clone, Debug, PartialEq)]
pub enum Latency {
    /// Always the same.
    Constant(Measured<Duration>),
    /// Points from `at = "0 %"`, the least, to `at = "100 %"`, the most.
    Table {
        /// The points, in increasing order.
        points: Vec<QuantilePoint>,
        /// Where they come from.
        source: Option<String>,
        /// How far they may be off.
        uncertainty: Option<Fraction>,
    },
}

documented! {
    /// One point of a distribution.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
    pub struct QuantilePoint {
        /// The part of all requests that take no longer.
        pub at: Fraction,
        /// How long.
        pub value: Duration,
    }
}

impl Serialize for Latency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            quantiles: &'a [QuantilePoint],
            #[serde(skip_serializing_if = "Option::is_none")]
            source: &'a Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            uncertainty: &'a Option<Fraction>,
        }
        match self {
            Latency::Constant(value) => value.serialize(serializer),
            Latency::Table { points, source, uncertainty } => {
                Written { quantiles: points, source, uncertainty }.serialize(serializer)
            }
        }
    }
}

impl FromSection for QuantilePoint {
    const EXPECTED: &'static str = r#"a point such as { at = "50 %", value = "10 ms" }"#;

    fn read(section: &Section<'_>) -> Option<QuantilePoint> {
        section.documents(QuantilePoint::DOCS);
        let (at, value) = (section.required::<Share>("at", "\"50 %\""), section.required("value", "\"10 ms\""));
        Some(QuantilePoint { at: at?.0, value: value? })
    }
}

impl FromNode for Latency {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match &node.value {
            Value::Table(table) if table.fields.contains_key("quantiles") => {}
            _ => return Measured::from_node(node, path).map(Latency::Constant),
        }
        Section::of(node, path, "a table of quantiles", Latency::read_table)
    }

    fn schema() -> serde_json::Value {
        let mut schema = Measured::<Duration>::schema();
        let mut table = Section::sketch(|section| Latency::read_table(&section));
        table["required"] = serde_json::json!(["quantiles"]);
        if let Some(ways) = schema["anyOf"].as_array_mut() {
            ways.push(table);
        }
        let said = schema["description"].as_str().unwrap_or_default();
        schema["description"] = format!("{said} Or a table with `quantiles`, for one that varies.").into();
        schema
    }
}

impl Latency {
    fn read_table(section: &Section<'_>) -> Option<Latency> {
        let said = |name, text| Doc { name, text, example: None };
        section.documents(&[
            said("quantiles", "Points in increasing order, from `at = \"0 %\"`, the least, to `at = \"100 %\"`, the most."),
            said("source", "Where they come from."),
            said("uncertainty", "How far they may be off."),
        ]);
        let points = section.field::<Vec<QuantilePoint>>("quantiles");
        let source = section.plain("source");
        let uncertainty = section.plain::<Share>("uncertainty").map(|u| u.0);
        let points = points?;
        if !is_distribution(&points) {
            let expected = r#"rising points at whole tenths of a percent, the first at "0 %", the last at "100 %""#;
            section.errors.push(points.wrong("is not a distribution").expected(expected));
        }
        Some(Latency::Table { points: points.value, source, uncertainty })
    }
}

fn is_distribution(points: &[QuantilePoint]) -> bool {
    let permille = |p: &QuantilePoint| p.at.base() * 1000.0;
    let whole = points.iter().all(|p| (permille(p) - permille(p).round()).abs() < 1e-6);
    let rising = points.windows(2).all(|w| w[0].at < w[1].at && w[0].value <= w[1].value);
    let complete = points.first().is_some_and(|p| p.at.is_zero()) && points.last().is_some_and(|p| p.at.base() == 1.0);
    whole && rising && complete
}

impl FromSection for Store {
    const EXPECTED: &'static str = r#"a store, such as { reader = "own", first_byte = "100 µs" }"#;

    fn read(section: &Section<'_>) -> Option<Store> {
        section.documents(Store::DOCS);
        let reader = section.required("reader", "\"pool\"");
        let request = section.field::<Measured<Positive<Size>>>("request");
        if let Some(request) = request.as_ref().filter(|_| !section.has("iops")) {
            let wrong = request.wrong(format!("says nothing without `{}`", section.path_of("iops")));
            section.errors.push(wrong.hint("write `iops = \"500000 requests/s\"`, the most requests a second"));
        }
        let cached: Option<Measured<Share>> = section.plain("cached");
        let store = |reader| Store {
            reader,
            first_byte: section.plain("first_byte"),
            per_connection: above_zero(section.plain("per_connection")),
            bandwidth: above_zero(section.plain("bandwidth")),
            connections: above_zero(section.plain("connections")),
            requests: above_zero(section.plain("requests")),
            burst: above_zero(section.plain("burst")),
            block: above_zero(section.plain("block")),
            iops: above_zero(section.plain("iops")),
            request: above_zero(request.map(|r| r.value)),
            rotation: section.plain("rotation"),
            cached: cached.map(|m| Measured { value: m.value.0, source: m.source, uncertainty: m.uncertainty }),
            cost: section.plain("cost"),
        };
        let read = store(reader.unwrap_or(Reader::Own));
        reader.map(|_| read)
    }
}

/// Drops the wrapper that has refused zero.
pub(super) fn above_zero<T>(measured: Option<Measured<Positive<T>>>) -> Option<Measured<T>> {
    measured.map(|m| Measured { value: m.value.0, source: m.source, uncertainty: m.uncertainty })
}
