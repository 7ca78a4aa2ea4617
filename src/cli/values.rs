//! How numbers are typed on the command line and printed to people.

/// Largest length that is taken: 2^40 tokens.
const MAX_LENGTH: usize = 1 << 40;

/// Tokens: `8192`, `8k` or `8K` (times 1024).
///
/// # Errors
/// Anything else, with examples of what is accepted; zero; more than 2^40.
pub fn parse_length(text: &str) -> Result<usize, String> {
    let bad = || format!("`{text}` is not a number of tokens; write for example 8192 or 8k");
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let length: usize = digits.parse().map_err(|_| bad())?;
    match length.checked_mul(unit) {
        Some(0) => Err("must be at least 1".to_string()),
        Some(length) if length > MAX_LENGTH => Err(format!("`{text}` is more than 2^40")),
        Some(length) => Ok(length),
        None => Err(bad()),
    }
}

/// Bytes: `1500000`, `800M`, `12G`, also `MiB` and `GiB` (all powers of 1024).
///
/// # Errors
/// Anything else, with examples of what is accepted.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a size; write for example 800M or 12G");
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &lower[digits.len()..] {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(bad()),
    };
    let size: f64 = digits.parse().map_err(|_| bad())?;
    let bytes = size * unit as f64;
    if bytes.is_finite() && bytes >= 1.0 && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(bad()) }
}

/// `513.2 MiB`
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// `12.3 s`, `4 min 05 s` or `2 h 03 min`.
pub fn format_duration(seconds: f64) -> String {
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A count with its digits in groups of three: `16 384`.
pub fn format_count(count: usize) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// Six significant digits, without trailing zeros: `0.00721235` or `1.22000e-5`.
pub fn format_number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    // Digits before the point, negative for zeros behind it.
    let before = if magnitude == 0.0 { 1 } else { magnitude.log10().floor() as i32 + 1 };
    let decimals = usize::try_from(6 - before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if decimals == 0 {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_plain_numbers_and_k() {
        assert_eq!(parse_length("8192"), Ok(8192));
        assert_eq!(parse_length("8k"), Ok(8192));
        assert_eq!(parse_length("32K"), Ok(32768));
        for bad in ["", "k", "0", "8m", "-1", "1.5k", "99999999999999999999", "99999999999999999k"] {
            assert!(parse_length(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_take_units() {
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("800MiB"), Ok(800 << 20));
        assert_eq!(parse_size("12"), Ok(12));
        for bad in ["", "G", "0", "-1G", "1X", "inf", "nan", "1e40G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_read_easily() {
        assert_eq!(format_number(1.138629436), "1.13863");
        assert_eq!(format_number(100000.0), "100000");
        assert_eq!(format_number(0.0), "0");
        assert_eq!(format_number(12.5), "12.5");
        assert_eq!(format_number(0.00721234567), "0.00721235");
        assert_eq!(format_number(0.999999999), "1");
        assert_eq!(format_number(1234567.8), "1234568");
        assert_eq!(format_number(3.3338e-5), "3.33380e-5");
        assert_eq!(format_count(1048576), "1 048 576");
        assert_eq!(format_size(513 << 20), "513.0 MiB");
        let durations = [0.04, 59.94, 59.96, 3599.4, 7384.0].map(format_duration);
        assert_eq!(durations, ["0.0 s", "59.9 s", "1 min 00 s", "59 min 59 s", "2 h 03 min"]);
    }
}
