//! The words and small values of a scenario.

use serde::Serialize;
use serde_json::json;

use crate::{
    document::{Diagnostic, Doc, FromNode, Node, Section, Share, Value, keyword, wrong_type},
    fault::Hits,
    units::Count,
};

keyword! {
    /// Where samples come from.
    pub enum DatasetKind {
        /// Images that Towtank makes up, and writes to the user's cache folder for a real run.
        Synthetic = "synthetic",
        /// Sizes drawn from a model; only to be simulated.
        Drawn = "drawn",
        /// The images of a folder, searched recursively.
        Folder = "folder",
    }
}

keyword! {
    /// Whose loader it is.
    pub enum Design {
        /// Towtank's own, simulated and real.
        Towtank = "towtank",
        /// Worker processes that each make whole batches, as PyTorch's `DataLoader` has them; only to be simulated.
        WorkerProcesses = "worker-processes",
    }
}

keyword! {
    /// Which order batches come in.
    pub enum Order {
        /// As planned.
        Plan = "plan",
        /// As decoding starts.
        Completion = "completion",
    }
}

keyword! {
    /// What happens to whole batches on the device.
    pub enum DeviceStage {
        /// Bytes by pixel become half floats by channel, centred and scaled as networks trained on ImageNet expect them.
        Normalize = "normalize",
    }
}

impl DeviceStage {
    /// Bytes that it makes of each of a sample's.
    pub(super) const BYTES_A_BYTE: u64 = 2;

    /// Its name, which is that of its cost in a machine's model.
    pub fn name(self) -> &'static str {
        match self {
            DeviceStage::Normalize => crate::loader::stage::NORMALIZE,
        }
    }
}

keyword! {
    /// What ranks do when samples do not divide evenly among them.
    pub enum Tail {
        /// Every rank delivers what it has.
        Uneven = "uneven",
        /// Short ranks repeat samples.
        Pad = "pad",
        /// Samples beyond the last even share are left out.
        Drop = "drop",
    }
}

keyword! {
    /// What a failed sample means.
    pub enum OnErrors {
        /// The loader ends with its error.
        Fail = "fail",
        /// It is left out and counted.
        Skip = "skip",
    }
}

keyword! {
    /// Which JPEG decoder is used in a real run.
    pub enum Codec {
        /// libjpeg-turbo when the computer has it, else pure Rust.
        Auto = "auto",
        /// Pure Rust.
        Rust = "rust",
        /// libjpeg-turbo.
        Turbo = "turbo",
    }
}

keyword! {
    /// How an image of any shape becomes one of the target's.
    pub enum Resize {
        /// Width and height are scaled apart.
        Squash = "squash",
        /// The shorter side is scaled to 8/7 of the target's longer side, and the middle is cut out: 256 and 224.
        CenterCrop = "center_crop",
    }
}

/// How many samples may fail under `errors = "skip"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Allowed {
    /// So many an epoch.
    Count(Count),
    /// This part of the epoch.
    Part(crate::units::Fraction),
}

impl FromNode for Allowed {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = r#"a number of samples or a part of the epoch, such as 10 or "1 %""#;
        match &node.value {
            Value::Text(_) => Share::from_node(node, path).map(|s| Allowed::Part(s.0)),
            Value::Integer(_) => Count::from_node(node, path).map(Allowed::Count),
            _ => Err(wrong_type(node, path, expected)),
        }
    }

    fn schema() -> serde_json::Value {
        let description = "A number of samples, or a part of the epoch, a percentage from `0 %` to `100 %`.";
        json!({ "anyOf": [Count::schema(), Share::schema()], "description": description, "examples": [10, "1 %"] })
    }
}

/// Width and height that every image is brought to: `224` or `"320x240"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

impl ImageSize {
    /// Bytes of one image of three channels.
    pub fn bytes(self) -> u64 {
        3 * u64::from(self.width) * u64::from(self.height)
    }
}

impl std::fmt::Display for ImageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}x{}", self.width, self.height))
    }
}

impl Serialize for ImageSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromNode for ImageSize {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = r#"a width and a height in pixels, from 1 to 65535, such as 224 or "320x240""#;
        let side = |n: u64| u32::try_from(n).ok().filter(|n| (1..=65_535).contains(n));
        let sides = match &node.value {
            Value::Integer(n) => u64::try_from(*n).ok().and_then(side).map(|n| (n, n)),
            Value::Text(text) => text.split_once(['x', '×']).and_then(|(w, h)| {
                let number = |t: &str| t.trim().parse().ok().and_then(side);
                Some((number(w)?, number(h)?))
            }),
            _ => None,
        };
        let (width, height) = sides.ok_or_else(|| wrong_type(node, path, expected))?;
        Ok(ImageSize { width, height })
    }

    fn schema() -> serde_json::Value {
        // Up to 99 999 here: a pattern that knows 65 535 says nothing to a reader.
        let side = r"\s*\+?0*[1-9][0-9]{0,4}\s*";
        json!({
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": 65_535 },
                { "type": "string", "pattern": format!("^{side}[x×]{side}$") },
            ],
            "description": "Pixels, from 1 to 65535: one number for a square, or width and height.",
            "examples": [224, "320x240"],
        })
    }
}

/// `"2 %"`, `[17, 4]`, or `{ share = "2 %", samples = [17, 4] }`.
impl FromNode for Hits {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = r#"a share, samples, or both, such as "2 %", [17, 4] or { share = "2 %", samples = [17, 4] }"#;
        let ppm = |share: Share| share.0.as_ppm() as u32;
        let indices = |list: Vec<Count>| list.into_iter().map(|c| c.0).collect();
        match &node.value {
            Value::Text(_) => Share::from_node(node, path).map(|s| Hits::share(ppm(s))),
            Value::List(_) => Vec::<Count>::from_node(node, path).map(|list| Hits { ppm: 0, samples: indices(list) }),
            Value::Table(_) => Section::of(node, path, expected, share_and_samples),
            _ => Err(wrong_type(node, path, expected)),
        }
    }

    fn schema() -> serde_json::Value {
        let table = Section::sketch(|section| share_and_samples(&section));
        let description = "A share, a percentage from `0 %` to `100 %`; samples by their number in the dataset, from 0, or, of copies and \
                           kernels, batches by their number in the run, from 0; or a table with both.";
        let examples = json!(["2 %", [17, 4], { "share": "2 %", "samples": [17, 4] }]);
        json!({ "anyOf": [Share::schema(), Vec::<Count>::schema(), table], "description": description, "examples": examples })
    }
}

fn share_and_samples(section: &Section<'_>) -> Option<Hits> {
    section.documents(&[
        Doc { name: "share", text: "The part that is hit, drawn by the seed.", example: Some("\"2 %\"") },
        Doc { name: "samples", text: "Samples that are hit, by their number in the dataset, from 0; of copies and kernels, batches by their number in the run.", example: Some("[17, 4]") },
    ]);
    let share = section.plain::<Share>("share").map_or(0, |share| share.0.as_ppm() as u32);
    let samples = section.plain::<Vec<Count>>("samples").unwrap_or_default();
    Some(Hits { ppm: share, samples: samples.into_iter().map(|c| c.0).collect() })
}
