//! What is wrong with a text, and where.

use std::{fmt, ops::Range, sync::Arc};

use super::printable;

/// A text that values come from: a file, or a flag.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
    flag: bool,
    /// The number of its first line.
    first_line: usize,
}

impl Source {
    /// The content of a file; `name` is what errors call it.
    pub fn file(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into(), flag: false, first_line: 1 })
    }

    /// Line `number`, from 1, of a file that is too long to be kept; `name` is what errors call the file.
    pub fn line(name: impl Into<String>, number: usize, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into(), flag: false, first_line: number })
    }

    /// What followed a flag; `name` is the flag, such as `--set`.
    pub fn flag(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into(), flag: true, first_line: 1 })
    }

    /// The file's name, or the flag.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Where in a text something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The text.
    pub source: Arc<Source>,
    /// Which bytes of it.
    pub span: Range<usize>,
}

impl Place {
    pub(crate) fn new(source: &Arc<Source>, span: Range<usize>) -> Place {
        Place { source: source.clone(), span }
    }

    /// Line and column, from 1; the column counts characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text[..self.span.start];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + self.source.first_line, before[line_start..].chars().count() + 1)
    }

    /// The line it begins on, and how many characters of that line it covers.
    fn line_and_width(&self) -> (&str, usize) {
        let text = &self.source.text;
        let start = text[..self.span.start].rfind('\n').map_or(0, |i| i + 1);
        let end = text[self.span.start..].find('\n').map_or(text.len(), |i| self.span.start + i);
        let covered = &text[self.span.start..self.span.end.clamp(self.span.start, end)];
        (text[start..end].trim_end(), covered.trim_end().chars().count().max(1))
    }
}

/// One thing that is wrong, where, what was expected instead, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong.
    pub message: String,
    /// Where it stands, when it stands anywhere.
    pub place: Option<Place>,
    /// What was expected there.
    pub expected: Option<String>,
    /// What may help.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Something wrong without a place.
    pub fn new(message: impl Into<String>) -> Diagnostic {
        Diagnostic { message: message.into(), place: None, expected: None, hint: None }
    }

    /// The same, standing at `place`.
    #[must_use]
    pub fn at(mut self, place: Option<&Place>) -> Diagnostic {
        self.place = place.cloned();
        self
    }

    /// The same, with what was expected.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Diagnostic {
        self.expected = Some(expected.into()).filter(|s| !s.is_empty());
        self
    }

    /// The same, with a hint; an empty one counts as none.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into()).filter(|s| !s.is_empty());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", printable(&self.message))?;
        let expected = self.expected.as_deref().map(printable);
        match &self.place {
            Some(place) => {
                let (line, column) = place.line_and_column();
                let (text, width) = place.line_and_width();
                let number = if place.source.flag { String::new() } else { line.to_string() };
                let margin = " ".repeat(number.len().max(1));
                let name = printable(&place.source.name);
                match place.source.flag {
                    true => write!(f, "\n{margin}--> {name}")?,
                    false => write!(f, "\n{margin}--> {name}:{line}:{column}")?,
                }
                let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
                let before: String = text.chars().take(column - 1).map(blank).collect();
                let before = before + &" ".repeat((column - 1).saturating_sub(text.chars().count()));
                let (text, w) = (printable(text), margin.len());
                write!(f, "\n{margin} |\n{number:>w$} | {text}\n{margin} | {before}{}", "^".repeat(width))?;
                if let Some(expected) = expected {
                    write!(f, " expected {expected}")?;
                }
            }
            None => {
                if let Some(expected) = expected {
                    write!(f, "\nexpected {expected}")?;
                }
            }
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", printable(hint)),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a scenario or a model: at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    diagnostics: Vec<Diagnostic>,
}

impl Trouble {
    pub(crate) fn of(diagnostics: Vec<Diagnostic>) -> Option<Trouble> {
        if diagnostics.is_empty() { None } else { Some(Trouble { diagnostics }) }
    }

    /// The same; whatever has no place of its own stands at `place`.
    pub(crate) fn placed(mut self, place: Option<&Place>) -> Trouble {
        for diagnostic in &mut self.diagnostics {
            if diagnostic.place.is_none() {
                diagnostic.place = place.cloned();
            }
        }
        self
    }

    /// The same; whatever has no hint of its own gets this one.
    pub(crate) fn hinted(mut self, hint: &str) -> Trouble {
        for diagnostic in &mut self.diagnostics {
            diagnostic.hint.get_or_insert_with(|| hint.to_owned());
        }
        self
    }

    /// What is wrong, in the order in which it was found.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl From<Diagnostic> for Trouble {
    fn from(one: Diagnostic) -> Trouble {
        Trouble { diagnostics: vec![one] }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.diagnostics.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Trouble {}
