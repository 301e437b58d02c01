//! Jump: the instruction at a changed entry, an opcode of one byte and a distance.

/// Returns the address that the jump at `at` leads to.
pub(in crate::attach) fn target_of(at: u64, jump: [u8; 5]) -> u64 {
    let [_, distance @ ..] = jump;
    let next = at + jump.len() as u64;
    next.wrapping_add_signed(i32::from_le_bytes(distance).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_jump_is_relative_to_its_end() {
        assert_eq!(target_of(0x1000, [0xe9, 0xfb, 0xff, 0xff, 0xff]), 0x1000);
    }
}
