//! The output under its temporary name, and the files that a merge created and may therefore replace.

mod journals;
pub(crate) mod made_by_merge;
mod partial;

pub(crate) use partial::{PartialOutput, temporary_names};
