//! Addresses on the command line: hexadecimal, as crashes, sanitizers and debuggers print them.
//!
//! `0x` may be left out. A number of decimal digits alone is taken for hexadecimal as well, unless
//! no address of a program is so large: then it must be a decimal one, and is refused.

/// No address of a program is as large: the user's half of the address space.
const NO_ADDRESS: u64 = 1 << 47;

/// Addresses that were given with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// In their order.
    pub(crate) all: Vec<u64>,
    /// The first that may be meant as a decimal number.
    pub(crate) assumed: Option<String>,
}

/// One or more addresses.
pub(crate) fn addresses(text: &str) -> Result<Addresses, String> {
    let mut found = Addresses {
        all: Vec::new(),
        assumed: None,
    };
    for word in text.split(',') {
        let word = word.trim();
        found.all.push(address(word)?);
        if is_decimal(word) && found.assumed.is_none() {
            found.assumed = Some(word.to_owned());
        }
    }
    Ok(found)
}

fn address(word: &str) -> Result<u64, String> {
    let lower = word.to_ascii_lowercase();
    let digits = lower.strip_prefix("0x").unwrap_or(&lower);
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = is_hex.then(|| u64::from_str_radix(digits, 16));
    match value {
        Some(Ok(value)) if value >= NO_ADDRESS && is_decimal(word) => Err(too_large(word)),
        Some(Ok(value)) => Ok(value),
        Some(Err(_)) if is_decimal(word) => Err(too_large(word)),
        Some(Err(_)) => Err(format!("{word} has more than 64 bits")),
        None => Err("an address in hexadecimal, such as 0x7f12a4c01040".into()),
    }
}

/// Why digits that are no hexadecimal address are refused, with the address that may be meant.
fn too_large(word: &str) -> String {
    let meant = match word.parse::<u64>() {
        Ok(value) => format!("; if it is decimal, write 0x{value:x}"),
        Err(_) => String::new(),
    };
    format!("addresses are hexadecimal, and 0x{word} is beyond those of programs{meant}")
}

/// Returns true if it may be a decimal number: one digit means the same in both.
fn is_decimal(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_with_and_without_a_prefix() {
        let all = |text| addresses(text).map(|it| it.all);
        assert_eq!(all("0x7f12a4c01040"), Ok(vec![0x7f12_a4c0_1040]));
        assert_eq!(
            all("7f12A4C01040, 0XFF,0"),
            Ok(vec![0x7f12_a4c0_1040, 255, 0])
        );
        assert_eq!(all("ffffffffffffffff"), Ok(vec![u64::MAX]));
        for wrong in [
            "",
            "0x",
            "x",
            "-1",
            "0x1g",
            "1,",
            "0x1ffffffffffffffff",
            "0x 1",
        ] {
            assert!(addresses(wrong).is_err(), "{wrong}");
        }
        assert_eq!(addresses("0x10,a1,5").unwrap().assumed, None);
    }

    #[test]
    fn digits_alone_are_assumed_to_be_hexadecimal_or_refused() {
        let found = addresses("dead,560012345678,12").unwrap();
        assert_eq!(found.all, [0xdead, 0x5600_1234_5678, 0x12]);
        assert_eq!(found.assumed.as_deref(), Some("560012345678"));
        let refused = addresses("139717171122240").unwrap_err();
        assert!(
            refused.contains("if it is decimal, write 0x7f12705a9040"),
            "{refused}"
        );
        let refused = addresses("99999999999999999999999").unwrap_err();
        assert!(refused.ends_with("beyond those of programs"), "{refused}");
    }
}
