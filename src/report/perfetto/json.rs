//! JSON text, written fast: a span costs some hundred bytes and there may be millions.

/// The digits of 0 to 99: two at a time halves the divisions.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + n as u8 / 10, b'0' + n as u8 % 10];
        n += 1;
    }
    pairs
};

/// Collects the text of trace events.
pub(super) struct Json {
    text: Vec<u8>,
    events: u64,
}

impl Json {
    pub(super) fn with_capacity(bytes: usize) -> Json {
        Json { text: Vec::with_capacity(bytes), events: 0 }
    }

    /// Begins an event of the given phase; whoever calls ends it.
    pub(super) fn event(&mut self, phase: &str, pid: u32) {
        self.raw(if self.events == 0 { "\n{\"ph\":\"" } else { ",\n{\"ph\":\"" });
        self.events += 1;
        self.raw(phase);
        self.number("\",\"pid\":", u64::from(pid));
    }

    /// Appends text as it is.
    #[inline]
    pub(super) fn raw(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Appends `prefix` and a number.
    pub(super) fn number(&mut self, prefix: &str, n: u64) {
        self.raw(prefix);
        self.digits(n);
    }

    /// Appends `prefix` and nanoseconds as microseconds.
    pub(super) fn micros(&mut self, prefix: &str, ns: u64) {
        self.raw(prefix);
        self.digits(ns / 1000);
        let rest = ns % 1000;
        if rest != 0 {
            let last = PAIRS[(rest % 100) as usize];
            self.text.extend_from_slice(&[b'.', b'0' + (rest / 100) as u8, last[0], last[1]]);
        }
    }

    /// Appends the words, as one string.
    pub(super) fn quoted(&mut self, words: &[&str]) {
        self.text.push(b'"');
        for c in words.iter().flat_map(|w| w.chars()) {
            match c {
                '"' | '\\' => self.text.extend_from_slice(&[b'\\', c as u8]),
                c if c < ' ' => self.raw(&format!("\\u{:04x}", c as u32)),
                c => self.raw(c.encode_utf8(&mut [0; 4])),
            }
        }
        self.text.push(b'"');
    }

    /// Appends a word that needs no escaping and a number, as one string.
    pub(super) fn numbered(&mut self, word: &str, n: u64) {
        self.text.push(b'"');
        self.number(word, n);
        self.text.push(b'"');
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
    }

    pub(super) fn into_string(self) -> String {
        String::from_utf8(self.text).expect("only whole strings and digits are appended")
    }

    #[inline]
    fn digits(&mut self, mut n: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        while n >= 100 {
            at -= 2;
            digits[at..at + 2].copy_from_slice(&PAIRS[(n % 100) as usize]);
            n /= 100;
        }
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[n as usize]);
        at += usize::from(n < 10);
        self.text.extend_from_slice(&digits[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Json)) -> String {
        let mut json = Json::with_capacity(64);
        write(&mut json);
        json.into_string()
    }

    #[test]
    fn numbers_are_decimal() {
        for n in [0, 1, 9, 10, 12_345, u64::MAX] {
            assert_eq!(text(|j| j.number("n=", n)), format!("n={n}"));
        }
    }

    #[test]
    fn nanoseconds_become_microseconds_without_loss() {
        for (ns, us) in [(0, "0"), (1, "0.001"), (40, "0.040"), (999, "0.999"), (1000, "1"), (1_234_567, "1234.567")] {
            assert_eq!(text(|j| j.micros("", ns)), us);
        }
    }

    #[test]
    fn strings_are_escaped_as_json_wants() {
        let odd = "a \"b\" \\ \n \u{1} é ✓";
        let back: String = serde_json::from_str(&text(|j| j.quoted(&[odd]))).expect("a JSON string");
        assert_eq!(back, odd);
    }
}
