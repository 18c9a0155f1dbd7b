//! Lists the leaf pages of a table, starting at its root page.

use super::database::PageDatabase;
use super::error::{PageError, PageProblem};
use crate::format::{HEADER, TABLE_INTERIOR, TABLE_LEAF, u16_at, u32_at};

/// Maximum depth of a tree; SQLite has the same limit.
const MAX_DEPTH: usize = 20;
/// Length of an interior page's header in bytes.
const INTERIOR_HEAD: usize = 12;

/// The leaf pages of a table.
#[derive(Debug, Default)]
pub struct Leaves {
    /// Page numbers in the order of the rowids. Only the first child of each interior page was examined. Decoding
    /// detects the others that are not leaves.
    pub pages: Vec<u32>,
    /// Pages that could not be followed. The rows below them are lost.
    pub damage: Vec<PageError>,
}

/// A traversal of interior pages.
struct Walk<'a> {
    database: &'a PageDatabase,
    /// One bit per page: whether another page refers to it.
    seen: Vec<u64>,
    leaves: Leaves,
    buffer: Vec<u8>,
}

/// The type of a page's children.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Leaves,
    Interiors,
}

impl PageDatabase {
    /// Returns the leaves of the table with this root page. Damaged pages are skipped and reported.
    pub fn leaves(&self, root: u32) -> Leaves {
        let mut walk = Walk {
            database: self,
            seen: vec![0; self.page_count() as usize / 64 + 1],
            leaves: Leaves::default(),
            buffer: vec![0; self.page_size],
        };
        walk.from(root);
        walk.leaves
    }
}

impl Walk<'_> {
    fn from(&mut self, root: u32) {
        if let Err(error) = self.mark(root) {
            self.leaves.damage.push(error);
            return;
        }
        match self.page_type(root) {
            Ok(TABLE_LEAF) => return self.leaves.pages.push(root),
            Ok(TABLE_INTERIOR) => {}
            Ok(other) => return self.damaged(root, PageProblem::Type(other)),
            Err(error) => return self.leaves.damage.push(error),
        }
        // Interior pages that are still to be visited; the next one is last.
        let mut open = vec![(root, 1)];
        while let Some((page, depth)) = open.pop() {
            if depth > MAX_DEPTH {
                self.damaged(page, PageProblem::Depth);
                continue;
            }
            match self.interior(page) {
                Ok((Level::Leaves, children)) => self.leaves.pages.extend(children),
                Ok((Level::Interiors, children)) => {
                    open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
                }
                Err(error) => self.leaves.damage.push(error),
            }
        }
    }

    /// Returns the children of an interior page that can be followed, and their type.
    fn interior(&mut self, page: u32) -> Result<(Level, Vec<u32>), PageError> {
        self.database.read_from(page, &mut self.buffer)?;
        let mut children = self.children(page)?;
        children.retain(|child| match self.mark(*child) {
            Ok(()) => true,
            Err(error) => {
                self.leaves.damage.push(error);
                false
            }
        });
        // All children of a page have the same type. A damaged child must not determine it.
        for child in &children {
            match self.page_type(*child) {
                Ok(TABLE_LEAF) => return Ok((Level::Leaves, children)),
                Ok(TABLE_INTERIOR) => return Ok((Level::Interiors, children)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok((Level::Leaves, children))
    }

    /// Returns the children of the interior page in the buffer.
    fn children(&self, page: u32) -> Result<Vec<u32>, PageError> {
        let bytes = &self.buffer[..self.database.usable];
        let head = header_offset(page);
        let damaged = |problem| self.database.error(page, problem);
        match bytes.get(head) {
            Some(&TABLE_INTERIOR) => {}
            other => return Err(damaged(PageProblem::Type(other.copied().unwrap_or(0)))),
        }
        let cells = usize::from(u16_at(bytes, head + 3).unwrap_or(0));
        let first = head + INTERIOR_HEAD + 2 * cells;
        let cell = |i: usize| {
            let at = usize::from(u16_at(bytes, head + INTERIOR_HEAD + 2 * i)?);
            if at >= first { u32_at(bytes, at) } else { None }
        };
        let right = u32_at(bytes, head + 8);
        (0..cells).map(cell).chain([right]).collect::<Option<_>>().ok_or_else(|| damaged(PageProblem::Cells))
    }

    /// Records that another page refers to this one. Fails if this page does not exist or was already referred to.
    fn mark(&mut self, page: u32) -> Result<(), PageError> {
        if page == 0 || page > self.database.page_count() {
            return Err(self.database.error(page, PageProblem::Missing));
        }
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        let Some(word) = self.seen.get_mut(word) else {
            return Err(self.database.error(page, PageProblem::Missing));
        };
        if *word & bit != 0 {
            return Err(self.database.error(page, PageProblem::Twice));
        }
        *word |= bit;
        Ok(())
    }

    fn page_type(&self, page: u32) -> Result<u8, PageError> {
        let mut bytes = [0; HEADER + 1];
        self.database.read_from(page, &mut bytes)?;
        Ok(bytes[header_offset(page)])
    }

    fn damaged(&mut self, page: u32, problem: PageProblem) {
        self.leaves.damage.push(self.database.error(page, problem));
    }
}

/// Returns the offset of a B-tree page's header: on page 1 it follows the file header.
pub(super) fn header_offset(page: u32) -> usize {
    if page == 1 { HEADER } else { 0 }
}
