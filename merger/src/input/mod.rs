//! Phase 1 and the reading half of phases 2 and 4: which inputs there are, what is in them, their rows.

mod block_facts;
mod candidate;
pub mod database;
pub mod death;
pub mod expand;
pub mod find;
pub mod format;
mod kept;
pub mod opened;
pub mod plan;
pub mod ranks;
pub mod schema;
pub mod source;
pub mod survey;
pub mod translate;
