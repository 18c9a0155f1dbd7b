//! Phase 1 and the reading half of phases 2 and 4: which inputs there are, what is in them, their rows.

mod block_facts;
pub(crate) mod candidate;
mod collectives;
pub mod database;
pub mod death;
pub mod expand;
pub mod find;
pub mod former;
pub mod gone;
pub mod home;
mod kept;
pub mod lost;
pub mod opened;
pub(crate) mod own_names;
pub mod pass;
pub mod plan;
pub mod ranks;
mod same;
pub mod schema;
pub mod source;
pub mod survey;
pub mod translate;
pub mod wait;
