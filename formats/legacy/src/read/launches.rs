//! Looks up the calls that launched operations.

use super::RpdReadError;
use super::schema::RpdFile;
use super::value::{address, int, text};
use rusqlite::Statement;
use rusqlite::types::ValueRef;

/// Properties of an operation that its call states.
#[derive(Default)]
pub(super) struct OpLaunch {
    pub(super) tid: Option<i64>,
    pub(super) stream: Option<Vec<u8>>,
    pub(super) kernel_name_id: Option<i64>,
    pub(super) kernel_name: Option<Vec<u8>>,
    /// Sizes of grid, workgroup, group segment and private segment.
    pub(super) sizes: [Option<i64>; 8],
    pub(super) copy_size: Option<i64>,
    pub(super) copy_kind: Option<i64>,
    pub(super) copy_ends: [Option<i64>; 2],
}

const SIZES: [&str; 8] = [
    "gridX",
    "gridY",
    "gridZ",
    "workgroupX",
    "workgroupY",
    "workgroupZ",
    "groupSegmentSize",
    "privateSegmentSize",
];

/// Looks up the launch of a call.
pub(super) struct LaunchQuery<'i> {
    query: Statement<'i>,
    input: &'i RpdFile,
    /// The last call and its launch: a graph launches thousands of operations in a row.
    last: Option<(i64, OpLaunch)>,
}

impl<'i> LaunchQuery<'i> {
    pub(super) fn new(input: &'i RpdFile) -> Result<LaunchQuery<'i>, RpdReadError> {
        let mut select = input.select("rocpd_api", "a");
        select.join("rocpd_kernelapi", "k", "api_ptr_id", "a.id");
        select.join("rocpd_copyapi", "c", "api_ptr_id", "a.id");
        select.column("rocpd_api", "a", "tid");
        select.column("rocpd_kernelapi", "k", "stream");
        select.column("rocpd_copyapi", "c", "stream");
        select.column("rocpd_kernelapi", "k", "kernelName_id");
        select.text(("rocpd_kernelapi", "k", "kernelName_id"), "rocpd_string", "kn");
        for column in ["size", "width", "height", "kind", "dst", "src"] {
            select.column("rocpd_copyapi", "c", column);
        }
        for column in SIZES {
            select.column("rocpd_kernelapi", "k", column);
        }
        let query = input.conn.prepare(&select.sql("WHERE a.id = ?"));
        Ok(LaunchQuery { query: query.map_err(|e| input.error("rocpd_api", e))?, input, last: None })
    }

    /// Returns the properties that this call states; empty ones if the call does not exist.
    pub(super) fn find(&mut self, call: i64) -> Result<&OpLaunch, RpdReadError> {
        let launch = match self.last.take() {
            Some((last, launch)) if last == call => launch,
            _ => self.read(call)?,
        };
        Ok(&self.last.insert((call, launch)).1)
    }

    fn read(&mut self, call: i64) -> Result<OpLaunch, RpdReadError> {
        let failed = |source| self.input.error("rocpd_api", source);
        let mut rows = self.query.query([call]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(OpLaunch::default()) };
        let value = |i| row.get_ref(i).unwrap_or(ValueRef::Null);
        let owned = |i| text(value(i)).map(|text| text.into_owned());
        // Two-dimensional copies have an area.
        let area = || int(value(6)).zip(int(value(7))).and_then(|(width, height)| width.checked_mul(height));
        Ok(OpLaunch {
            tid: int(value(0)),
            stream: owned(1).or_else(|| owned(2)),
            kernel_name_id: int(value(3)),
            kernel_name: owned(4),
            copy_size: int(value(5)).or_else(area),
            copy_kind: int(value(8)),
            copy_ends: [address(value(9)), address(value(10))],
            sizes: std::array::from_fn(|i| int(value(11 + i))),
        })
    }
}
