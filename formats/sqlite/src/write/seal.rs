//! Writes interior pages, freelist and header, which turn the leaves into a database.

use super::PAGE_SIZE;
use super::error::SealError;
use super::page_map::{LogicalPage, PageNumberError, offset};
use super::stage::push_varint;
use crate::format::{HEADER, MAGIC, TABLE_INTERIOR, TABLE_LEAF, at, u16_at, u32_at};
use rpd_files::{FileAccess, open_output};
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Length of an interior page's header in bytes.
const INTERIOR_HEAD: usize = 12;
/// Maximum number of pages in a trunk page of the freelist. SQLite itself leaves the last six entries empty.
const TRUNK_ENTRIES: usize = PAGE_SIZE / 4 - 8;

/// Completes a database after all its leaves are written.
#[derive(Debug)]
pub struct Sealer {
    path: PathBuf,
    file: File,
    header: [u8; HEADER],
    /// The first unused page.
    next: LogicalPage,
    /// The highest page in use.
    last: u32,
    free: Vec<u32>,
}

/// A page and the largest rowid on it or below it.
type Child = (u32, i64);

/// An interior page that is being filled.
#[derive(Debug, Default)]
struct Node {
    children: Vec<Child>,
    /// Number of bytes of cells and pointers: of all children except the last.
    bytes: usize,
}

/// The unwritten pages of one level. One full page is held back, because the last page of a level may need a second
/// child from it.
#[derive(Debug, Default)]
struct Level {
    held: Option<Node>,
    filling: Node,
}

impl Sealer {
    /// Opens a database that SQLite created and closed, after all leaves are written. `end` is the first usable
    /// page after them. All pages between the original file and `end` belong to runs.
    pub fn open(path: &Path, end: LogicalPage) -> Result<Sealer, SealError> {
        let failed = |source| SealError::Io { path: path.to_owned(), source };
        let file = open_output(path, FileAccess::ReadWrite).map_err(failed)?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        if let Some(problem) = unfit(&header) {
            return Err(SealError::Unfit { path: path.to_owned(), problem });
        }
        let last = u32_at(&header, at::PAGES).unwrap_or(0);
        if end < LogicalPage::after(last) {
            return Err(SealError::Unfit {
                path: path.to_owned(),
                problem: "the pages begin inside the file",
            });
        }
        let last = end.before().physical()?.max(last);
        Ok(Sealer { path: path.to_owned(), file, header, next: end, last, free: Vec::new() })
    }

    /// Makes `leaves` the content of the table with this root page, which must be empty. Each leaf has its largest
    /// rowid; leaves are in the order of the rowids.
    pub fn table(
        &mut self,
        root: u32,
        leaves: impl IntoIterator<Item = (LogicalPage, i64)>,
    ) -> Result<(), SealError> {
        self.check_root(root)?;
        let mut levels = vec![Level::default()];
        let mut previous = None;
        for (page, rowid) in leaves {
            if previous.is_some_and(|previous| previous >= rowid) {
                return Err(self.root_error(root, "its leaves are not in the order of their rowids"));
            }
            previous = Some(rowid);
            self.push(&mut levels, 0, (page.physical()?, rowid))?;
        }
        match levels[0].filling.children[..] {
            [] => Ok(()),
            [(leaf, _)] if levels[0].held.is_none() => self.move_leaf(leaf, root),
            _ => self.close_levels(levels, root),
        }
    }

    /// Updates the header; from then on SQLite sees the rows of the tables.
    pub fn finish(mut self) -> Result<(), SealError> {
        self.write_freelist()?;
        let length = u64::from(self.last) * PAGE_SIZE as u64;
        if self.file.metadata().map_err(|e| self.failed(e))?.len() < length {
            self.file.set_len(length).map_err(|e| self.failed(e))?;
        }
        let changes = u32_at(&self.header, at::CHANGES).unwrap_or(0).wrapping_add(1);
        self.set(at::CHANGES, changes);
        self.set(at::VALID_FOR, changes);
        self.set(at::PAGES, self.last);
        self.file.write_all_at(&self.header, 0).map_err(|e| self.failed(e))
    }

    fn push(&mut self, levels: &mut Vec<Level>, depth: usize, child: Child) -> Result<(), SealError> {
        if levels.len() == depth {
            levels.push(Level::default());
        }
        let level = &mut levels[depth];
        if level.filling.has_space() {
            level.filling.push(child);
            return Ok(());
        }
        let full = mem::take(&mut level.filling);
        level.filling.push(child);
        match level.held.replace(full) {
            Some(node) => self.push_node(levels, depth + 1, &node),
            None => Ok(()),
        }
    }

    /// Writes a page and adds it as a child one level higher.
    fn push_node(&mut self, levels: &mut Vec<Level>, depth: usize, node: &Node) -> Result<(), SealError> {
        let page = self.allocate()?;
        self.write(page, &node.page())?;
        let rowid = node.children.last().map_or(0, |(_, rowid)| *rowid);
        self.push(levels, depth, (page, rowid))
    }

    /// Writes the pages that are held back, level by level. The single page of the highest level becomes the root.
    fn close_levels(&mut self, mut levels: Vec<Level>, root: u32) -> Result<(), SealError> {
        for depth in 0.. {
            let Level { held, mut filling } = mem::take(&mut levels[depth]);
            let Some(mut held) = held else {
                return self.write(root, &filling.page());
            };
            if filling.children.len() == 1 {
                filling.take_last_of(&mut held);
            }
            self.push_node(&mut levels, depth + 1, &held)?;
            self.push_node(&mut levels, depth + 1, &filling)?;
        }
        Ok(())
    }

    /// Moves the only leaf of a table into its root page.
    fn move_leaf(&mut self, leaf: u32, root: u32) -> Result<(), SealError> {
        let page = self.read(leaf)?;
        self.write(root, &page)?;
        self.free.push(leaf);
        Ok(())
    }

    fn check_root(&self, root: u32) -> Result<(), SealError> {
        if root < 2 || root > u32_at(&self.header, at::PAGES).unwrap_or(0) {
            return Err(self.root_error(root, "the file has no such page"));
        }
        let page = self.read(root)?;
        match (page[0], u16_at(&page, 3)) {
            (TABLE_LEAF, Some(0)) => Ok(()),
            (TABLE_LEAF | TABLE_INTERIOR, _) => Err(self.root_error(root, "it has rows already")),
            _ => Err(self.root_error(root, "it is not the root page of a table with rowids")),
        }
    }

    fn allocate(&mut self) -> Result<u32, PageNumberError> {
        let page = self.next.physical()?;
        self.next = self.next.plus(1);
        self.last = page;
        Ok(page)
    }

    /// Adds the pages that became free to the front of the file's freelist.
    ///
    /// A trunk page is `next trunk (u32), entries (u32), page numbers (u32 each)`.
    fn write_freelist(&mut self) -> Result<(), SealError> {
        let free = mem::take(&mut self.free);
        let mut first = u32_at(&self.header, at::FREE_TRUNK).unwrap_or(0);
        for chunk in free.chunks(TRUNK_ENTRIES + 1) {
            let Some((trunk, entries)) = chunk.split_first() else { continue };
            let mut page = vec![0; PAGE_SIZE];
            let numbers = [first, entries.len() as u32].into_iter().chain(entries.iter().copied());
            page.chunks_exact_mut(4).zip(numbers).for_each(|(p, n)| p.copy_from_slice(&n.to_be_bytes()));
            self.write(*trunk, &page)?;
            first = *trunk;
        }
        let count = u32_at(&self.header, at::FREE_PAGES).unwrap_or(0);
        self.set(at::FREE_TRUNK, first);
        self.set(at::FREE_PAGES, count.saturating_add(free.len() as u32));
        Ok(())
    }

    fn set(&mut self, offset: usize, value: u32) {
        self.header[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
    }

    fn read(&self, page: u32) -> Result<Vec<u8>, SealError> {
        let mut bytes = vec![0; PAGE_SIZE];
        self.file.read_exact_at(&mut bytes, offset(page)).map_err(|e| self.failed(e))?;
        Ok(bytes)
    }

    fn write(&self, page: u32, bytes: &[u8]) -> Result<(), SealError> {
        self.file.write_all_at(bytes, offset(page)).map_err(|e| self.failed(e))
    }

    fn failed(&self, source: io::Error) -> SealError {
        SealError::Io { path: self.path.clone(), source }
    }

    fn root_error(&self, root: u32, problem: &'static str) -> SealError {
        SealError::Root { path: self.path.clone(), root, problem }
    }
}

/// Returns the reason why pages cannot be added to a file with this header.
fn unfit(header: &[u8; HEADER]) -> Option<&'static str> {
    let number = |offset| u32_at(header, offset).unwrap_or(0);
    if header[..MAGIC.len()] != *MAGIC {
        Some("it is not a SQLite database")
    } else if u16_at(header, at::PAGE_SIZE) != Some(PAGE_SIZE as u16) || header[at::RESERVED] != 0 {
        Some("its pages are not of 4096 bytes")
    } else if header[at::WRITE_VERSION..=at::READ_VERSION] != [1, 1] {
        Some("it is in WAL mode")
    } else if number(at::SCHEMA_FORMAT) != 4 {
        Some("its schema is not of format 4")
    } else if number(at::AUTO_VACUUM) != 0 {
        Some("it has auto_vacuum")
    } else if number(at::ENCODING) != 1 {
        Some("its texts are not UTF-8")
    } else if number(at::CHANGES) != number(at::VALID_FOR) || number(at::PAGES) == 0 {
        Some("it does not know its length")
    } else {
        None
    }
}

impl Node {
    /// Returns the number of bytes of this child's cell, including its pointer.
    fn cell_bytes((_, rowid): Child) -> usize {
        let bits = u64::BITS - (rowid as u64 | 1).leading_zeros();
        6 + bits.div_ceil(7).min(9) as usize
    }

    /// Returns whether another child fits: the present last child then needs a cell.
    fn has_space(&self) -> bool {
        let last = self.children.last().map_or(0, |child| Node::cell_bytes(*child));
        INTERIOR_HEAD + self.bytes + last <= PAGE_SIZE
    }

    fn push(&mut self, child: Child) {
        self.bytes += self.children.last().map_or(0, |last| Node::cell_bytes(*last));
        self.children.push(child);
    }

    fn take_last_of(&mut self, other: &mut Node) {
        if let Some(child) = other.children.pop() {
            self.bytes += Node::cell_bytes(child);
            self.children.insert(0, child);
        }
    }

    fn page(&self) -> [u8; PAGE_SIZE] {
        let (last, celled) =
            self.children.split_last().map_or((0, &[][..]), |((page, _), rest)| (*page, rest));
        let mut bytes = [0; PAGE_SIZE];
        let mut content = PAGE_SIZE;
        let mut cell = Vec::with_capacity(4 + 9);
        for (i, (page, rowid)) in celled.iter().enumerate() {
            cell.clear();
            cell.extend_from_slice(&page.to_be_bytes());
            push_varint(&mut cell, *rowid as u64);
            // SQLite, too, places the first cell at the end of the page.
            content -= cell.len();
            bytes[content..content + cell.len()].copy_from_slice(&cell);
            let pointer = INTERIOR_HEAD + 2 * i;
            bytes[pointer..pointer + 2].copy_from_slice(&(content as u16).to_be_bytes());
        }
        bytes[0] = TABLE_INTERIOR;
        bytes[3..5].copy_from_slice(&(celled.len() as u16).to_be_bytes());
        bytes[5..7].copy_from_slice(&(content as u16).to_be_bytes());
        bytes[8..INTERIOR_HEAD].copy_from_slice(&last.to_be_bytes());
        bytes
    }
}
