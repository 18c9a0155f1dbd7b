//! Maps logical pages to page numbers of a file.

use super::PAGE_SIZE;
use crate::format::LOCK_BYTE;

/// Number of the page that contains SQLite's lock byte at this page size; the page is never used.
const LOCK_PAGE: u64 = LOCK_BYTE / PAGE_SIZE as u64 + 1;
/// Largest page number of SQLite.
const LAST_PAGE: u64 = 0xffff_fffe;

/// Number of a page among the usable ones, from 1 on. The page of the lock byte (at 1 GiB) is not counted.
///
/// Ranks calculate with these numbers; only physical numbers are written into a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogicalPage(u64);

/// The database would have more pages than SQLite can number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a database holds at most 4294967294 pages of 4096 bytes, and this one would need page {0}")]
pub struct PageNumberError(u64);

impl LogicalPage {
    /// Returns the first usable page after a file of this many pages.
    pub fn after(page_count: u32) -> LogicalPage {
        let count = u64::from(page_count);
        LogicalPage(if count >= LOCK_PAGE { count } else { count + 1 })
    }

    /// Returns the page that is `pages` usable pages after this one.
    pub fn plus(self, pages: u64) -> LogicalPage {
        LogicalPage(self.0.saturating_add(pages))
    }

    /// Returns the previous usable page.
    pub(super) fn before(self) -> LogicalPage {
        LogicalPage(self.0.saturating_sub(1))
    }

    /// Returns the page number in the file, from 1 on.
    pub fn physical(self) -> Result<u32, PageNumberError> {
        let number = if self.0 >= LOCK_PAGE { self.0.saturating_add(1) } else { self.0 };
        u32::try_from(number).ok().filter(|n| u64::from(*n) <= LAST_PAGE).ok_or(PageNumberError(number))
    }

    /// Returns the number of pages from this one on that are consecutive in the file, up to the lock page.
    pub(super) fn consecutive(self) -> u64 {
        if self.0 < LOCK_PAGE { LOCK_PAGE - self.0 } else { u64::MAX }
    }
}

/// Returns the offset in bytes of the page with this number.
pub(super) fn offset(physical: u32) -> u64 {
    u64::from(physical.saturating_sub(1)) * PAGE_SIZE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_page_is_skipped() {
        let before = LogicalPage::after(262_143);
        assert_eq!(before.physical(), Ok(262_144));
        assert_eq!(before.consecutive(), 1);
        assert_eq!(before.plus(1).physical(), Ok(262_146));
        assert_eq!(LogicalPage::after(262_144).physical(), Ok(262_146));
        assert_eq!(LogicalPage::after(262_145).physical(), Ok(262_146));
        assert_eq!(LogicalPage::after(262_146).physical(), Ok(262_147));
    }

    #[test]
    fn numbers_end() {
        assert_eq!(LogicalPage::after(0xffff_fffd).physical(), Ok(0xffff_fffe));
        assert_eq!(LogicalPage::after(0xffff_fffe).physical(), Err(PageNumberError(0xffff_ffff)));
        assert!(LogicalPage::after(0).plus(u64::MAX).physical().is_err());
    }
}
