//! Texts of others, made fit for a terminal.

use std::borrow::Cow;

/// The text with each control character, which a terminal might obey, as the picture of it: the escape that begins a colour is `␛`. Tabs and
/// ends of lines stay, and so does the number of characters, by which places in a line are counted.
///
/// File names, names in traces and lines that errors quote may be anybody's.
///
/// ```
/// use towtank::document::printable;
///
/// assert_eq!(printable("a photo.jpg"), "a photo.jpg");
/// assert_eq!(printable("\u{1b}]0;title\u{7}.jpg"), "␛]0;title␇.jpg");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    let picture = |c: char| match c {
        '\n' | '\t' => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{7f}' => '\u{2421}',
        // The second set, and what turns the direction of writing around.
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    match text.chars().any(|c| picture(c) != c) {
        true => Cow::Owned(text.chars().map(picture).collect()),
        false => Cow::Borrowed(text),
    }
}

/// Text as one word of a command line that may be pasted into a shell: in quotes where it must be, and made [printable] first, so that
/// what holds control characters is harmless and names nothing.
///
/// ```
/// use towtank::document::shell_word;
///
/// assert_eq!(shell_word("failures/quickstart-7.toml"), "failures/quickstart-7.toml");
/// assert_eq!(shell_word("my $(runs)/it's.toml"), r"'my $(runs)/it'\''s.toml'");
/// ```
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@,".contains(c);
    let text = printable(text);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        true => text,
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{Diagnostic, Place, Source};

    proptest! {
        #[test]
        fn no_control_character_is_left_and_no_place_moves(text: String) {
            let shown = printable(&text);
            prop_assert!(shown.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
            prop_assert_eq!(shown.chars().count(), text.chars().count());
            prop_assert_eq!(printable(&shown).into_owned(), shown.into_owned());
        }
    }

    #[test]
    fn an_error_quotes_a_line_without_obeying_it() {
        let source = Source::file("a\u{1b}[2J.toml", "batch = \"\u{1b}[31m3\u{7}\"");
        let wrong = Diagnostic::new("`batch` is \"\u{1b}[31m3\u{7}\"").at(Some(&Place::new(&source, 8..16))).expected("a count");
        insta::assert_snapshot!(wrong.to_string(), @r#"
        error: `batch` is "␛[31m3␇"
         --> a␛[2J.toml:1:9
          |
        1 | batch = "␛[31m3␇"
          |         ^^^^^^^^ expected a count
        "#);
    }
}
