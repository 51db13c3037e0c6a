//! `[replay]`: the schedule under which a scenario failed a check, and what it broke.

use super::typed;
use crate::{
    document::{Diagnostic, Errors, FromNode, Node, Spanned, Value, wrong_type},
    sim::{Chooser, Tape, Timing},
    units::Count,
};

/// A run to be repeated, choice by choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Name of the invariant that it broke.
    pub invariant: String,
    /// The loader that broke it, where that is not this crate's.
    pub design: Option<String>,
    /// The schedule.
    pub chooser: Chooser,
    /// Whether things take time.
    pub timing: Timing,
    /// The batch, from 0, after which another run went on.
    pub resume_after: Option<u64>,
    /// Hash of its trace.
    pub trace_hash: Option<u64>,
}

/// `[[12, 1], [40, 2]]`: choice 12 took alternative 1, choice 40 alternative 2.
#[derive(Clone, Debug)]
pub(super) struct Choices(Tape);

impl FromNode for Choices {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let expected = "pairs of a choice's number and the alternative that it took, such as [[12, 1], [40, 2]]";
        let Value::List(list) = &node.value else { return Err(wrong_type(node, path, expected)) };
        let pair = |(i, node): (usize, &Node)| {
            let pair = Vec::<Count>::from_node(node, &format!("{path}[{i}]"))?;
            let fits = |pair: &[Count]| match pair {
                [number, taken] => Some((number.0, u32::try_from(taken.0).ok()?)),
                _ => None,
            };
            fits(&pair).ok_or_else(|| wrong_type(node, &format!("{path}[{i}]"), expected))
        };
        list.iter().enumerate().map(pair).collect::<Result<Tape, _>>().map(Choices)
    }

    fn schema() -> serde_json::Value {
        let pair = serde_json::json!({
            "type": "array", "minItems": 2, "maxItems": 2,
            "items": { "type": "integer", "minimum": 0, "description": "A whole number.", "examples": [1] },
        });
        serde_json::json!({
            "type": "array", "items": pair, "examples": [[[12, 1], [40, 2]]],
            "description": "Pairs of a choice's number, from 0, and the alternative that it took.",
        })
    }
}

/// `[4711, 3, 120]`: priorities of seed 4711, for bugs of depth 3, in a run of about 120 choices.
#[derive(Clone, Debug)]
pub(super) struct Pct(Chooser);

impl FromNode for Pct {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let numbers = Vec::<Count>::from_node(node, path)?;
        let chooser = match numbers[..] {
            [seed, depth, length] => {
                u32::try_from(depth.0).ok().map(|depth| Chooser::Pct { seed: seed.0, depth, length: length.0 })
            }
            _ => None,
        };
        let wrong = || wrong_type(node, path, "a seed, a depth and a number of choices, such as [4711, 3, 120]");
        chooser.map(Pct).ok_or_else(wrong)
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({
            "type": "array", "minItems": 3, "maxItems": 3, "examples": [[4711, 3, 120]],
            "items": { "type": "integer", "minimum": 0, "description": "A whole number.", "examples": [1] },
            "description": "The seed of priorities, how many things have to happen in one order, and about how many choices there are.",
        })
    }
}

/// Sixteen hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u64);

impl FromNode for Hash {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let text = String::from_node(node, path)?;
        let digits = text.len() == 16 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        let hash = u64::from_str_radix(&text, 16).ok().filter(|_| digits);
        hash.map(Hash).ok_or_else(|| wrong_type(node, path, "sixteen hexadecimal digits, such as \"00c0ffee00c0ffee\""))
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({
            "type": "string", "pattern": "^[0-9a-f]{16}$", "description": "Sixteen hexadecimal digits.",
            "examples": ["00c0ffee00c0ffee"],
        })
    }
}

/// What is meant; `None` where there is no such table.
pub(super) fn resolve(typed: &typed::Replay, errors: &Errors) -> Option<Replay> {
    let invariant = typed.invariant.as_ref()?;
    if let (Some(tape), Some(_)) = (&typed.tape, &typed.random) {
        errors.push(tape.wrong("contradicts `replay.random`: a schedule is by chance or as a tape says"));
    }
    if let (Some(pct), true) = (&typed.pct, typed.tape.is_some() || typed.random.is_some()) {
        errors.push(pct.wrong("contradicts what else `replay` says: a schedule is by priorities, by chance or as a tape says"));
    }
    let chooser = match (&typed.tape, &typed.random, &typed.pct) {
        (Some(Spanned { value: Choices(tape), .. }), ..) if !tape.is_empty() => Chooser::Replay(tape.clone()),
        (None, Some(seed), _) => Chooser::Random(seed.value.0),
        (None, None, Some(Spanned { value: Pct(pct), .. })) => pct.clone(),
        _ => Chooser::Fifo,
    };
    let is_abstract = typed.abstract_time.as_ref().is_some_and(|typed| typed.value);
    Some(Replay {
        invariant: invariant.value.clone(),
        design: typed.design.as_ref().map(|design| design.value.clone()),
        chooser,
        timing: if is_abstract { Timing::Abstract } else { Timing::Modelled },
        resume_after: typed.resume_after.as_ref().map(|k| k.value.0),
        trace_hash: typed.trace_hash.as_ref().map(|hash| hash.value.0),
    })
}
