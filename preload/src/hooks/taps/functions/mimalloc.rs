//! mimalloc's own functions: their names, and how each takes its arguments.
//!
//! Not here: functions that only Windows has, and those that move blocks between heaps
//! (`mi_heap_delete`, `mi_subproc_delete`), which free none.

use super::Call::{
    Allocate, AllocateArray, AllocateString, AllocateStringInto, AllocateStringUnless,
    AllocateWithin, Free, FreeUnseen, Resize, ResizeArray,
};
use super::Function;

/// mimalloc's own functions (`mimalloc.h`), behind `mi_`.
pub(super) const MIMALLOC: &[Function] = &[
    (b"malloc_small", Allocate { size: 0 }),
    (b"zalloc_small", Allocate { size: 0 }),
    (b"zalloc", Allocate { size: 0 }),
    (b"mallocn", AllocateArray { count: 0, size: 1 }),
    (
        b"reallocn",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (b"reallocf", Resize { ptr: 0, size: 1 }),
    (b"rezalloc", Resize { ptr: 0, size: 1 }),
    (
        b"recalloc",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (b"malloc_aligned", Allocate { size: 0 }),
    (b"malloc_aligned_at", Allocate { size: 0 }),
    (b"zalloc_aligned", Allocate { size: 0 }),
    (b"zalloc_aligned_at", Allocate { size: 0 }),
    (b"calloc_aligned", AllocateArray { count: 0, size: 1 }),
    (b"calloc_aligned_at", AllocateArray { count: 0, size: 1 }),
    (b"realloc_aligned", Resize { ptr: 0, size: 1 }),
    (b"realloc_aligned_at", Resize { ptr: 0, size: 1 }),
    (b"rezalloc_aligned", Resize { ptr: 0, size: 1 }),
    (
        b"recalloc_aligned",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (b"new", Allocate { size: 0 }),
    (b"new_nothrow", Allocate { size: 0 }),
    (b"new_aligned", Allocate { size: 0 }),
    (b"new_aligned_nothrow", Allocate { size: 0 }),
    (b"new_n", AllocateArray { count: 0, size: 1 }),
    (b"new_realloc", Resize { ptr: 0, size: 1 }),
    (
        b"new_reallocn",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (b"heap_malloc", Allocate { size: 1 }),
    (b"heap_malloc_small", Allocate { size: 1 }),
    (b"heap_zalloc", Allocate { size: 1 }),
    (b"heap_calloc", AllocateArray { count: 1, size: 2 }),
    (b"heap_mallocn", AllocateArray { count: 1, size: 2 }),
    (b"heap_malloc_aligned", Allocate { size: 1 }),
    (b"heap_malloc_aligned_at", Allocate { size: 1 }),
    (b"heap_zalloc_aligned", Allocate { size: 1 }),
    (b"heap_zalloc_aligned_at", Allocate { size: 1 }),
    (b"heap_calloc_aligned", AllocateArray { count: 1, size: 2 }),
    (b"heap_realloc", Resize { ptr: 1, size: 2 }),
    (
        b"heap_reallocn",
        ResizeArray {
            ptr: 1,
            count: 2,
            size: 3,
        },
    ),
    (b"heap_reallocf", Resize { ptr: 1, size: 2 }),
    (b"heap_rezalloc", Resize { ptr: 1, size: 2 }),
    (
        b"heap_recalloc",
        ResizeArray {
            ptr: 1,
            count: 2,
            size: 3,
        },
    ),
    (b"heap_realloc_aligned", Resize { ptr: 1, size: 2 }),
    (b"heap_rezalloc_aligned", Resize { ptr: 1, size: 2 }),
    (b"heap_alloc_new", Allocate { size: 1 }),
    (
        b"aligned_recalloc",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (
        b"aligned_offset_recalloc",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (
        b"recalloc_aligned_at",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (
        b"heap_recalloc_aligned",
        ResizeArray {
            ptr: 1,
            count: 2,
            size: 3,
        },
    ),
    (
        b"heap_recalloc_aligned_at",
        ResizeArray {
            ptr: 1,
            count: 2,
            size: 3,
        },
    ),
    (b"rezalloc_aligned_at", Resize { ptr: 0, size: 1 }),
    (b"heap_realloc_aligned_at", Resize { ptr: 1, size: 2 }),
    (b"heap_rezalloc_aligned_at", Resize { ptr: 1, size: 2 }),
    (b"theap_realloc", Resize { ptr: 1, size: 2 }),
    (
        b"heap_calloc_aligned_at",
        AllocateArray { count: 1, size: 2 },
    ),
    (b"heap_alloc_new_n", AllocateArray { count: 1, size: 2 }),
    (b"theap_calloc", AllocateArray { count: 1, size: 2 }),
    (b"heap_zalloc_small", Allocate { size: 1 }),
    (b"heap_umalloc", Allocate { size: 1 }),
    (b"theap_malloc", Allocate { size: 1 }),
    (b"theap_malloc_small", Allocate { size: 1 }),
    (b"theap_malloc_aligned", Allocate { size: 1 }),
    (b"theap_zalloc", Allocate { size: 1 }),
    (b"theap_zalloc_small", Allocate { size: 1 }),
    (b"theap_umalloc", Allocate { size: 1 }),
    (b"umalloc", Allocate { size: 0 }),
    (b"umalloc_small", Allocate { size: 0 }),
    (b"umalloc_aligned", Allocate { size: 0 }),
    (b"uzalloc", Allocate { size: 0 }),
    (b"uzalloc_small", Allocate { size: 0 }),
    (b"uzalloc_aligned", Allocate { size: 0 }),
    (b"ucalloc", AllocateArray { count: 0, size: 1 }),
    (b"urealloc", Resize { ptr: 0, size: 1 }),
    (b"ufree", Free { ptr: 0 }),
    (b"free_small", Free { ptr: 0 }),
    (b"strdup", AllocateString),
    (b"strndup", AllocateString),
    (b"mbsdup", AllocateString),
    (b"heap_strdup", AllocateString),
    (b"heap_strndup", AllocateString),
    (b"realpath", AllocateStringUnless { buffer: 1 }),
    (b"heap_realpath", AllocateStringUnless { buffer: 2 }),
    (b"theap_realpath", AllocateStringUnless { buffer: 2 }),
    (b"dupenv_s", AllocateStringInto { place: 0 }),
    (
        // The width of its characters is that of the version.
        b"wcsdup",
        AllocateWithin {
            function: c"mi_wcsdup",
            buffer: None,
        },
    ),
    (
        b"stats_get_json",
        AllocateWithin {
            function: c"mi_stats_get_json",
            buffer: Some(1),
        },
    ),
    (
        b"heap_stats_get_json",
        AllocateWithin {
            function: c"mi_heap_stats_get_json",
            buffer: Some(2),
        },
    ),
    (
        b"subproc_stats_get_json",
        AllocateWithin {
            function: c"mi_subproc_stats_get_json",
            buffer: Some(2),
        },
    ),
    (
        b"heap_destroy",
        FreeUnseen {
            function: c"mi_heap_destroy",
        },
    ),
    (
        b"subproc_destroy",
        FreeUnseen {
            function: c"mi_subproc_destroy",
        },
    ),
    (b"free_size", Free { ptr: 0 }),
    (b"free_aligned", Free { ptr: 0 }),
    (b"free_size_aligned", Free { ptr: 0 }),
];
