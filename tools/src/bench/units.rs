//! Numbers for people: three or four digits and a unit.

/// A duration in nanoseconds, such as "950 ns", "12.3 us", "1.20 ms".
#[must_use]
pub fn duration(nanos: f64) -> String {
    scaled(nanos, 1000.0, &["ns", "us", "ms", "s"], " ")
}

/// Bytes in powers of 1024, such as "512 B" or "3.49 TiB".
#[must_use]
pub fn binary_bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], " ")
}

/// A count in powers of 1000, such as "831", "12.3k" or "1.68M".
#[must_use]
pub fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T"], "")
}

/// A whole number with its thousands apart, such as "1,234,567".
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn scaled(mut value: f64, base: f64, units: &[&str], gap: &str) -> String {
    let mut unit = 0;
    // 999.5 would be written as 1000.
    while value >= base - 0.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if value.fract() == 0.0 && unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    // A whole number of units is written as one.
    let whole = text.trim_end_matches('0').trim_end_matches('.');
    let text =
        if text.contains('.') && !whole.contains('.') && base == 1024.0 { whole } else { &text };
    format!("{text}{gap}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let rows = [
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (7.25, "7.25 ns"),
            (999.0, "999 ns"),
            (999.9, "1.00 us"),
            (12_345.0, "12.3 us"),
            (123_456.0, "123 us"),
            (9_999_999.0, "10.0 ms"),
            (3.5e9, "3.50 s"),
            (7.2e12, "7200 s"),
        ];
        for (nanos, text) in rows {
            assert_eq!(duration(nanos), text);
        }
    }

    #[test]
    fn bytes_and_counts_are_short() {
        assert_eq!(binary_bytes(512.0), "512 B");
        assert_eq!(binary_bytes(16384.0), "16 KiB");
        assert_eq!(binary_bytes(3.5 * 1024.0 * 1024.0), "3.50 MiB");
        assert_eq!(count(831.0), "831");
        assert_eq!(count(1_680_000.0), "1.68M");
        assert_eq!(count(12_345.0), "12.3k");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }
}
