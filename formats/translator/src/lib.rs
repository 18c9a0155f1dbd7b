//! Shared base of the readers of foreign formats. A [`Translator`] writes the rows of a foreign file as a shard,
//! and counts what was read, cut, ignored and lost.
//!
//! A reader creates typed rows ([`rpd_shard::model::row_types::TableRow`]) and passes them to [`Translator::row`].
//! It returns the [`Translation`], or a [`TranslateError`] if nothing could be read.

mod error;
mod ignored_names;
mod text;
mod translation;
mod translator;

pub use error::{FilePosition, TranslateError};
pub use ignored_names::IgnoredNames;
pub use text::cut_text;
pub use translation::Translation;
pub use translator::{PendingLimit, Translator};
