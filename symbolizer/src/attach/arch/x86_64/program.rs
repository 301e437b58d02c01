//! Program: the kind of program and of processor that heapprof can be attached to.

/// The kind of program, in words.
pub(in crate::attach) const KIND: &str = "64-bit x86";
/// The beginning of the name of glibc's loader.
pub(in crate::attach) const LOADER: &str = "ld-linux-x86-64.so";
/// Bytes of an ELF file's head by which its processor is known.
pub(in crate::attach) const HEAD: usize = 20;
/// The processor in that head (`EM_X86_64`), and its place.
const MACHINE: [u8; 2] = [62, 0];
const MACHINE_AT: usize = 18;

/// Returns true if a file with this head is a program of that kind: ELF, 64 bits, little-endian.
pub(in crate::attach) fn is_supported(head: &[u8; HEAD]) -> bool {
    head.starts_with(b"\x7fELF\x02\x01") && head[MACHINE_AT..] == MACHINE
}

/// Returns the name of an instruction that borrowed code needs and this processor lacks.
/// `processors` is the text of `/proc/cpuinfo`.
pub(in crate::attach) fn missing_instruction(processors: &str) -> Option<&'static str> {
    const STORE_OF_EXTENDED_STATE: &str = "xsave";
    let flags = processors.lines().find(|line| line.starts_with("flags"))?;
    let mut flags = flags.split_ascii_whitespace();
    let has_it = flags.any(|flag| flag == STORE_OF_EXTENDED_STATE);
    (!has_it).then_some(STORE_OF_EXTENDED_STATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_the_instruction_is_refused() {
        let missing = |flags| missing_instruction(&format!("processor\t: 0\n{flags}\n"));
        assert_eq!(missing("flags\t\t: fpu xsave sse"), None);
        assert_eq!(missing("flags\t\t: fpu xsaveopt sse"), Some("xsave"));
        assert_eq!(
            missing("model name\t: of a kernel that tells no flags"),
            None
        );
    }
}
