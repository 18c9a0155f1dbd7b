//! Lists the files to merge, and translates foreign ones.

pub(crate) mod counter_pass;
pub(crate) mod find;
pub(crate) mod original_names;
pub(super) mod other_users;
pub(crate) mod translate;
pub(crate) mod unused;
pub(crate) mod wait;
