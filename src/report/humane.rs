//! Numbers for people: three digits that matter, and a unit that leaves them near 1.

/// `1 281 167`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Three digits that matter, more where a number has them before its point.
pub(crate) fn number(x: f64) -> String {
    let size = x.abs();
    // Rounded first, so that 99.96 becomes 100 and not 100.0.
    let decimals = [(99.95, 0), (9.995, 1), (0.9995, 2)].iter().find(|(least, _)| size >= *least).map_or(3, |(_, d)| *d);
    match decimals {
        0 if x < 0.0 => format!("-{}", count(size.round() as u64)),
        0 => count(size.round() as u64),
        _ if x == 0.0 => "0".to_owned(),
        _ => format!("{x:.decimals$}"),
    }
}

/// `12.3 ms`, from nanoseconds to seconds.
pub(crate) fn seconds(s: f64) -> String {
    let size = s.abs();
    match size {
        0.0 => "0 s".to_owned(),
        _ if size < 0.9995e-6 => format!("{} ns", number(s * 1e9)),
        _ if size < 0.9995e-3 => format!("{} µs", number(s * 1e6)),
        _ if size < 0.9995 => format!("{} ms", number(s * 1e3)),
        _ => format!("{} s", number(s)),
    }
}

/// `4.20 MiB`.
pub(crate) fn bytes(n: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut n, mut unit) = (n, 0);
    while n >= 999.5 && unit + 1 < units.len() {
        n /= 1024.0;
        unit += 1;
    }
    if unit == 0 && n.fract() == 0.0 { format!("{n} B") } else { format!("{} {}", number(n), units[unit]) }
}

/// `2 622 samples/s`.
pub(crate) fn rate(per_s: f64) -> String {
    format!("{} samples/s", number(per_s))
}

/// `97.3 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let told = [0.0, 0.01234, 0.99949, 0.9996, 1.234, 12.345, 99.96, 123.4, 1_234.5, 1_281_167.0, -4_321.0].map(number);
        assert_eq!(told, ["0", "0.012", "0.999", "1.00", "1.23", "12.3", "100", "123", "1 235", "1 281 167", "-4 321"]);
    }

    #[test]
    fn seconds_find_their_unit() {
        let told = [0.0, 4.2e-8, 1.5e-6, 0.000_999_9, 0.0123, 0.9996, 58.7, 4_000.0].map(seconds);
        assert_eq!(told, ["0 s", "42.0 ns", "1.50 µs", "1.00 ms", "12.3 ms", "1.00 s", "58.7 s", "4 000 s"]);
    }

    #[test]
    fn bytes_are_powers_of_1024() {
        let told = [0.0, 999.0, 1024.0, 150_528.0, 1_048_576.0, 8_589_934_592.0].map(bytes);
        assert_eq!(told, ["0 B", "999 B", "1.00 KiB", "147 KiB", "1.00 MiB", "8.00 GiB"]);
    }
}
