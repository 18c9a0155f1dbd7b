/// Columns to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All columns.
    All,
    /// Columns with ids: `Ref`, `Str` and `Stack`. The others are `Cells::Absent`.
    Links,
    /// Columns with these names. The others are `Cells::Absent`.
    Named(&'static [&'static str]),
}
