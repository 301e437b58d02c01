//! Naming: the names of a profile's addresses, and what people group and filter stacks by.
//!
//! Imports: `resolve`, `model`.
//!
//! Not here: reading the files of modules and their debug information (`resolve`).

pub(crate) mod allocator_name;
pub(crate) mod bare_name;
pub(crate) mod coverage;
pub(crate) mod crate_name;
pub(crate) mod emergency_pool;
pub(crate) mod filter;
pub(crate) mod flame;
pub(crate) mod fold_library;
pub(crate) mod group;
pub(crate) mod growing;
pub(crate) mod own_frame;
pub(crate) mod paths;
pub(crate) mod pattern;
pub(crate) mod selection;
pub(crate) mod site;
pub(crate) mod suppressions;
pub(crate) mod symbols;
pub(crate) mod tree;
pub(crate) mod type_name;
