//! Enumerations of recorded functions.

/// Makes an enumeration of functions and a function `name` that returns the name of a number.
macro_rules! numbered_functions {
    ($(#[$doc:meta])* $functions:ident: $($name:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(non_camel_case_types, missing_docs)]
        #[repr(u32)]
        pub enum $functions { $($name),* }

        /// Returns the name of the function with this number.
        pub fn name(number: u32) -> Option<&'static str> {
            const NAMES: &[&str] = &[$(stringify!($name)),*];
            NAMES.get(usize::try_from(number).ok()?).copied()
        }
    };
}
pub(crate) use numbered_functions;
