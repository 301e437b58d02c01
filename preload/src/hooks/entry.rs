//! Entry: the PC that stands for an exported function in a stack.

/// Evaluates to a PC inside an exported function.
macro_rules! entry {
    ($function:path) => {
        ($function as *const () as u64) + 1
    };
}
pub(crate) use entry;

/// The entry of an exported function for which the linker puts another one into our own references
/// (`--wrap`, in the build script). Its own name has `__real_` in front of it then.
macro_rules! wrapped_entry {
    ($real_name:literal) => {{
        unsafe extern "C" {
            #[link_name = $real_name]
            fn exported();
        }
        crate::hooks::entry::entry!(exported)
    }};
}
pub(crate) use wrapped_entry;
