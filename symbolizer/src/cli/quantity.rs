//! Quantities on the command line.

/// `1048576`, `512KiB`, `100MiB`, `1GiB`: bytes, more than 0, in powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("bytes, such as 1048576, 512KiB, 100MiB, 1GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a number of bytes")?;
    number
        .checked_mul(1 << shift)
        .filter(|&n| n > 0)
        .ok_or_else(|| "more than 0, and less than 2^64".into())
}
