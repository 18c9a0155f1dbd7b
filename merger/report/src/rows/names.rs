//! Numbers for names and categories.

use rpd_run::RunStrings;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of a name in a run. The same name may have several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NameNumber(u32);

impl NameNumber {
    /// Returns one of `slots` for the name. Few names of a run have the same.
    pub(crate) fn slot(self, slots: usize) -> usize {
        self.0 as usize % slots.max(1)
    }
}

/// Number of a category in a run; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct CategoryCode(u16);

/// Names of rows: strings of the database by their places, then texts of other tables.
#[derive(Debug)]
pub(crate) struct RowNames<'r> {
    strings: &'r RunStrings,
    others: Mutex<OtherTexts>,
    categories: Mutex<KnownCategories>,
    /// Categories that other merge ranks found.
    others_categories: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct OtherTexts {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

/// Categories by the ids of their strings.
#[derive(Debug, Default)]
struct KnownCategories {
    ids: Vec<i64>,
    codes: HashMap<i64, CategoryCode>,
}

/// Locks a table of texts, which is complete even if another thread panicked.
fn locked<T>(texts: &Mutex<T>) -> MutexGuard<'_, T> {
    texts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'r> RowNames<'r> {
    pub(super) fn new(strings: &'r RunStrings) -> RowNames<'r> {
        RowNames {
            strings,
            others: Mutex::default(),
            categories: Mutex::default(),
            others_categories: Mutex::default(),
        }
    }

    /// Returns the number of a string of the database.
    #[inline]
    pub(super) fn of_string(&self, id: i64) -> Option<NameNumber> {
        self.strings.place(id).map(|place| NameNumber(place as u32))
    }

    /// Returns the number of any other text.
    pub(super) fn number(&self, text: &str) -> NameNumber {
        let mut others = locked(&self.others);
        if let Some(number) = others.numbers.get(text) {
            return NameNumber(*number);
        }
        let number = (self.strings.len() + others.texts.len()) as u32;
        others.texts.push(text.to_owned());
        others.numbers.insert(text.to_owned(), number);
        NameNumber(number)
    }

    /// Returns a name. What is not UTF-8 is replaced.
    pub(crate) fn text(&self, name: NameNumber) -> Cow<'r, str> {
        match (name.0 as usize).checked_sub(self.strings.len()) {
            None => String::from_utf8_lossy(self.strings.at(name.0 as usize)),
            Some(other) => Cow::Owned(locked(&self.others).texts.get(other).cloned().unwrap_or_default()),
        }
    }

    /// Returns the code of the category with this string. Categories beyond 65,535 have none.
    pub(super) fn category_code(&self, id: i64) -> CategoryCode {
        let mut known = locked(&self.categories);
        if let Some(code) = known.codes.get(&id) {
            return *code;
        }
        let code = CategoryCode(u16::try_from(known.ids.len() + 1).unwrap_or(0));
        known.ids.push(id);
        known.codes.insert(id, code);
        code
    }

    /// Returns the names of all categories that rows have.
    pub(crate) fn categories(&self) -> BTreeSet<String> {
        let known = locked(&self.categories);
        let own = known.ids.iter().filter_map(|id| self.strings.get(*id)).map(Cow::into_owned);
        own.chain(locked(&self.others_categories).iter().cloned()).collect()
    }

    /// Adds categories that another merge rank found.
    pub(super) fn add_categories(&self, categories: BTreeSet<String>) {
        locked(&self.others_categories).extend(categories);
    }

    /// Returns the name of a category; `None` if a row has none.
    pub(crate) fn category(&self, code: CategoryCode) -> Option<Cow<'r, str>> {
        let place = usize::from(code.0).checked_sub(1)?;
        let id = locked(&self.categories).ids.get(place).copied()?;
        self.strings.get(id)
    }
}
