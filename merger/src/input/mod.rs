//! Phase 1 and the reading half of phases 2 and 4: which shards there are, what is in them, their rows.

mod block_facts;
pub mod death;
pub mod expand;
pub mod find;
pub mod plan;
pub mod ranks;
pub mod source;
pub mod survey;
