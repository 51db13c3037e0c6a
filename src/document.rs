//! TOML as people write it: every value with its place, so that an error can point at it.
//!
//! Scenarios and models are read in two steps. A text becomes a tree of nodes; `--set path.to.field=value` flags are laid over it
//! and keep their own place, so that an error in a flag quotes the flag. Then a section hands out typed fields by name, each a
//! [`Spanned`] value, and in the end reports every field that nobody asked for. Errors are collected, not thrown: a file with three
//! mistakes is told about three.
//!
//! ```text
//! error: unknown field `prefech` in `[loader]`
//!   --> scenarios/quickstart.toml:12:1
//!    |
//! 12 | prefech = 2
//!    | ^^^^^^^ expected one of `batch`, `budget`, `prefetch`, …
//! hint: did you mean `prefetch`?
//! ```

mod diagnostic;
mod printable;
mod section;
mod sketch;
mod tree;
mod typed;
mod yaml;

pub use diagnostic::{Diagnostic, Place, Source, Trouble};
pub use printable::{printable, shell_word};
pub(crate) use section::{Errors, FromSection, Section, keyword};
pub(crate) use sketch::{Doc, doc_of, documented, whole, words};
pub(crate) use tree::{Document, Node, Table, Value};
pub use typed::Spanned;
pub(crate) use typed::{FromNode, Positive, Share, wrong_type};
