//! Lists the files to merge, and translates foreign ones.

mod counter_pass;
mod find;
mod original_names;
pub(super) mod other_users;
mod package;
pub(crate) mod translate;
mod unused;
mod wait;

pub(crate) use counter_pass::pass_of;
pub(crate) use find::{
    DEFAULT_OUTPUT, DEFAULT_RPD, InputListing, ListedFile, SHARD_EXTENSION, exists, find, has_log,
    has_no_input, hold, is_shard, is_text, shards_in,
};
pub(crate) use original_names::OriginalNames;
pub(crate) use package::INDEX_NAME;
pub(crate) use translate::{TRANSLATED, TranslatedFolder, TranslationNotes};
pub(crate) use unused::{UnusedFile, UnusedFiles, UnusedKind, find_all};
pub(crate) use wait::wait_for_shards;
