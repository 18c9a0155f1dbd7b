/// Which columns are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those that hold ids: `Ref`, `Str` and `Stack`. The others are `Cells::Absent`.
    Links,
    /// Those with these names. The others are `Cells::Absent`.
    Named(&'static [&'static str]),
}
