//! Functions of interpreters: modules of their own, whose frames take the place of the
//! interpreter's.
//!
//! ```text
//!   in the log                                      in the profile
//!   malloc, list_resize, PyList_Append              malloc, list_resize, PyList_Append
//!   _PyEval_EvalFrameDefault    runs f and g
//!     f (a.py), g (a.py)                            f (a.py), g (a.py)
//!   PyObject_Call, builtin_sorted
//!   _PyEval_EvalFrameDefault    runs main
//!     main (a.py)                                   main (a.py)
//!   Py_RunMain
//!   __libc_start_main                               __libc_start_main
//! ```
//!
//! The native frame that runs a Python frame stands right before it, so no name is needed to leave
//! it out. Behind the first Python frame, frames of the interpreter's own file are left out, too:
//! they lead from one Python frame to another. A program that has the interpreter in its own file
//! keeps them, since there they may be the program's.

use std::sync::Arc;

use heapprof_format::{CODE_LEN, Code, Segment, Stack, is_code_address};

use super::Fold;
use crate::model::loaded_module::LoadedModule;

impl Fold {
    /// Takes a function of an interpreter, which a log may repeat.
    pub(super) fn code(&mut self, code: Code) {
        if !self.codes.insert(code.start) {
            return;
        }
        self.profile.modules.push(LoadedModule {
            path: code.file.clone(),
            // Logs have the same address for the same function alone.
            build_id: code.start.to_be_bytes().to_vec(),
            bias: Some(0),
            segments: vec![Segment {
                start: code.start,
                len: CODE_LEN,
                file_offset: 0,
                flags: EXECUTABLE,
            }],
            code: Some(Arc::new(code)),
            ..LoadedModule::default()
        });
    }

    /// Leaves out the frames of the interpreter, if the stack has frames that it runs.
    pub(super) fn leave_interpreter_out(&self, stack: &mut Stack) {
        let is_code = |frame: &u64| is_code_address(*frame);
        let Some(first) = stack.frames.iter().position(is_code) else {
            return;
        };
        let interpreter = first
            .checked_sub(1)
            .and_then(|runs_it| self.last_module_at(stack.frames[runs_it]))
            .filter(|module| is_interpreter(module));
        let frames = std::mem::take(&mut stack.frames);
        let mut interrupted = std::mem::take(&mut stack.interrupted);
        interrupted.sort_unstable();
        for (index, &frame) in frames.iter().enumerate() {
            let is_left_out = !is_code(&frame)
                && (frames.get(index + 1).is_some_and(is_code)
                    || index > first && interpreter.is_some_and(|it| it.contains(frame)));
            if is_left_out {
                continue;
            }
            if interrupted.binary_search(&(index as u32)).is_ok() {
                stack.interrupted.push(stack.frames.len() as u32);
            }
            stack.frames.push(frame);
        }
    }

    /// Returns the module that came last of those that have an address.
    fn last_module_at(&self, avma: u64) -> Option<&LoadedModule> {
        let mut modules = self.profile.modules.iter().rev();
        modules.find(|module| module.code.is_none() && module.contains(avma))
    }
}

/// ELF's `PF_X`.
const EXECUTABLE: u32 = 1;

/// Returns true if a module is an interpreter and nothing else.
fn is_interpreter(module: &LoadedModule) -> bool {
    let name = module.name();
    name.starts_with("python") || name.starts_with("libpython")
}
