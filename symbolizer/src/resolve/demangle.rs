//! Demangling: linkage names to readable names, for Rust (legacy and v0) and C++.
//!
//! Names come from untrusted files. A few hundred bytes of substitutions can stand for gigabytes of
//! text. So a long linkage name stays as it is, and a long readable name is cut.

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::constructor::with_first_parameters;
use super::cpp_name;
use super::length::{LONGEST_LINKAGE, shortened, within};

/// Ends substitution bombs: what is shown is shorter, but its end decides where it is cut.
const LONGEST_DEMANGLED: usize = 16 << 10;

/// The readable form of a Rust or C++ linkage name; `None` when it is neither, or cannot be read.
///
/// Rust's hashes are left out (`core::fmt::write`, not `core::fmt::write::h1234…`), and what C++
/// has by default (`std::string`, `std::vector<int>`).
pub fn demangle(raw: &str) -> Option<String> {
    if raw.len() > LONGEST_LINKAGE || !may_be_mangled(raw) {
        return None;
    }
    let named = |raw| {
        rust(raw)
            .or_else(|| cpp(&with_first_parameters(raw, cpp)))
            .or_else(|| just_the_name(raw))
    };
    let name = match raw.strip_suffix("@plt") {
        Some(function) => named(function).map(|name| name + "@plt"),
        None => named(raw),
    };
    name.map(|name| shortened(&name).into_owned())
}

/// Both languages' schemes begin so; `__R` and `__Z` are their forms on a platform with leading
/// underscores.
fn may_be_mangled(raw: &str) -> bool {
    let rest = raw.trim_start_matches('_');
    rest.len() < raw.len() && rest.starts_with(['R', 'Z'])
}

fn rust(raw: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(raw).ok()?;
    let mut out = Bounded::default();
    // The alternate form leaves the hash out.
    let written = write!(out, "{name:#}").is_ok();
    out.text_if(written)
}

fn cpp(raw: &str) -> Option<String> {
    // cpp_demangle limits its recursion (96 levels parsing, 128 writing), but is large, and fuzzers
    // have found panics in it before. One odd name must not end the report on a million good ones.
    catch_unwind(AssertUnwindSafe(|| {
        let symbol = cpp_demangle::Symbol::new(raw).ok()?;
        let mut out = Bounded::default();
        let options = cpp_demangle::DemangleOptions::default();
        let written = symbol.structured_demangle(&mut out, &options).is_ok();
        out.text_if(written)
            .map(|name| cpp_name::short(&without_empty_packs(name)))
    }))
    .ok()
    .flatten()
}

/// Template arguments and parameters as others write them: an empty pack is nothing, and neither
/// comma nor what is said of its types stands there (cpp_demangle 0.5 has `f(int, &&)` of
/// `Args&&...`).
fn without_empty_packs(mut name: String) -> String {
    if name.contains("operator,") {
        return name;
    }
    for (with, without) in [(", >", ">"), (", )", ")"), (", &)", ")"), (", &&)", ")")] {
        if name.contains(with) {
            name = name.replace(with, without);
        }
    }
    // A reference to an array or a function has a blank before it: `int (&&) [5]`.
    for with in ["(&&)", "(&)"] {
        while let Some(at) = name.match_indices(with).map(|(at, _)| at).find(|&at| {
            let before = name[..at].chars().next_back();
            before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '>'))
        }) {
            name.replace_range(at..at + with.len(), "()");
        }
    }
    name
}

/// So many ends of a name are tried.
const MOST_ENDS: usize = 64;

/// The name of a function template without its parameters, when not all of these can be read:
/// cpp_demangle 0.5 does not know each expression that may stand in a type, such as in what g++ 12
/// makes of `std::make_shared`. The name comes first, and ends with the `E` of its template
/// arguments or of its scopes; the shortest beginning that is a name is all of it.
fn just_the_name(raw: &str) -> Option<String> {
    let ends = raw.match_indices('E').map(|(at, _)| &raw[..=at]);
    ends.take(MOST_ENDS).find_map(cpp)
}

/// Text that refuses to grow past [`LONGEST_DEMANGLED`].
#[derive(Default)]
struct Bounded {
    text: String,
    is_full: bool,
}

impl Bounded {
    /// The text, if all of it was written or it is longer than anybody reads.
    fn text_if(self, written: bool) -> Option<String> {
        (written || self.is_full).then_some(self.text)
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = LONGEST_DEMANGLED - self.text.len();
        self.text.push_str(within(text, left));
        if text.len() > left {
            self.is_full = true;
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_is_read() {
        let cases = [
            (
                "_ZN4core3fmt5write17h0123456789abcdefE",
                Some("core::fmt::write"),
            ),
            ("_RNvC6_123foo3bar", Some("123foo::bar")),
            ("_ZN2ns3fooEi", Some("ns::foo(int)")),
            (
                "_ZN2ns3fooEi.constprop.0",
                Some("ns::foo(int) [clone .constprop.0]"),
            ),
            ("_ZN2ns3fooEi@plt", Some("ns::foo(int)@plt")),
            (
                "_ZN4node7FPrintFIJEEEvP8_IO_FILEPKcDpOT_",
                Some("void node::FPrintF<>(_IO_FILE*, char const*)"),
            ),
            ("_Z4makeIJEEvDpOT_", Some("void make<>()")),
            ("_Z4makeIJEEvDpRT_", Some("void make<>()")),
            ("_Z4makeOA5_i", Some("make(int (&&) [5])")),
            ("malloc@plt", None),
            ("malloc", None),
            ("_start", None),
            ("_ZThis is not a name", None),
            ("", None),
        ];
        for (raw, expected) in cases {
            assert_eq!(demangle(raw).as_deref(), expected, "{raw}");
        }
    }

    #[test]
    fn where_parameters_cannot_be_read_the_name_is() {
        let cases = [
            // The name that g++ 12 gives to std::make_shared<Item>() in C++17.
            (
                "_ZSt11make_sharedI4ItemJEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_",
                Some("std::make_shared<Item>"),
            ),
            ("_ZN4name5spaceEXnonsense", Some("name::space")),
            ("_ZXnonsenseE", None),
        ];
        for (raw, expected) in cases {
            assert_eq!(demangle(raw).as_deref(), expected, "{raw}");
        }
    }

    /// c++filt has the same names, but for the short ones of the standard library.
    #[test]
    fn a_constructor_template_has_all_its_parameters() {
        for (raw, expected) in [
            (
                "_ZN2my3BoxIiEC2IfEEmT_i",
                "my::Box<int>::Box<float>(unsigned long, float, int)",
            ),
            (
                "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1IS3_EEmcRKS3_",
                "std::string::string<std::allocator<char>>(unsigned long, char, std::allocator<char> const&)",
            ),
            ("_ZN2VvC1IiEET_", "Vv::Vv<int>(int)"),
            ("_ZN1HIiEC1IJEEEDpOT_", "H<int>::H<>()"),
            ("_ZN1HIcEC2I2XxEET_PNS3_1xE", "H<char>::H<Xx>(Xx, Xx::x*)"),
            ("_ZN2TgB5cxx11C2IfEEiT_", "Tg::Tg<float>(int, float)"),
            ("_ZN1AC1B5cxx11IfEEiT_", "A::A<float>(int, float)"),
            (
                "_ZN1AC1IN1BI1CIiEEEEEmT_i",
                "A::A<B<C<int>>>(unsigned long, B<C<int>>, int)",
            ),
            (
                "_ZN1BC2IfEEmT_i.isra.0",
                "B::B<float>(unsigned long, float, int) [clone .isra.0]",
            ),
            // The scope of a lambda, and of a lambda that is an argument.
            (
                "_ZZN1BC4IcEEmT_iENKUlvE_clEv",
                "B::B<char>(unsigned long, char, int)::{lambda()#1}::operator()() const",
            ),
            (
                "_ZNSt17_Function_handlerIFvvEZN1BC4IcEEmT_iEUlvE_E9_M_invokeERKSt9_Any_data",
                "std::_Function_handler<void (), B::B<char>(unsigned long, char, int)::{lambda()#1}>::_M_invoke(std::_Any_data const&)",
            ),
            // No constructor templates.
            (
                "_ZN3FC1I1AIiEE3barIdEEmT_",
                "unsigned long FC1<A<int>>::bar<double>(double)",
            ),
            ("_ZN3FC1I1AIiEEC2Em", "FC1<A<int>>::FC1(unsigned long)"),
            ("_ZN3foo3fooIiEET_S1_", "int foo::foo<int>(int)"),
            ("_ZN1HIiEcvPT_IiEEv", "H<int>::operator int*<int>()"),
            ("_ZN1GI1BED2Ev", "G<B>::~G()"),
            (
                "_ZZ3locIdEvT_EN1LC2Eid",
                "void loc<double>(double)::L::L(int, double)",
            ),
        ] {
            assert_eq!(demangle(raw).as_deref(), Some(expected), "{raw}");
        }
    }

    #[test]
    fn a_substitution_bomb_is_cut() {
        // f(A<..>): each template argument repeats the one before twice, 2^60 characters in the
        // end.
        let mut bomb = String::from("_Z1fI1AIiiE");
        for seq in 0..60_u32 {
            let digit = char::from_digit(seq % 36, 36)
                .map(|c| c.to_ascii_uppercase())
                .unwrap_or('0');
            let id = if seq == 0 {
                "0".to_owned()
            } else if seq < 36 {
                digit.to_string()
            } else {
                format!("1{digit}")
            };
            bomb.push_str(&format!("S_IS{id}_S{id}_E"));
        }
        bomb.push_str("EvT_");
        let start = std::time::Instant::now();
        let name = demangle(&bomb).expect("a name");
        assert!(
            name.ends_with('…') && name.len() < LONGEST_DEMANGLED,
            "{}",
            name.len()
        );
        assert!(start.elapsed().as_secs() < 5);
    }

    #[test]
    fn deep_nesting_neither_overflows_nor_hangs_on_a_small_stack() {
        std::thread::Builder::new()
            .stack_size(2 << 20) // what rayon's and std's threads have
            .spawn(|| {
                for part in [
                    "P", "N", "I", "1AI", "DpT", "XadL_Z", "K", "F", "S_I", "dtcl", "Z1f",
                ] {
                    let name = format!("_Z1f{}", part.repeat(LONGEST_LINKAGE / part.len() - 10));
                    let _ = demangle(&name);
                    let _ = demangle(&name.replacen("_Z", "_R", 1));
                }
            })
            .expect("a thread")
            .join()
            .expect("no panic");
    }
}
