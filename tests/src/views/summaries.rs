//! The summary views of several databases together, from those of each and from their tables.

use super::rows::real;
use crate::content::DatabaseContent;
use rusqlite::{Connection, Result};
use std::collections::BTreeMap;

/// Views that sum up a database.
pub(super) const VIEWS: [&str; 3] = ["top", "top_kernels", "busy"];

/// What they show of all databases.
pub(super) fn together(databases: &[&Connection]) -> Result<DatabaseContent> {
    let kernels = ["rocpd_kernel_dispatch"];
    let all = ["rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region"];
    let mut content = DatabaseContent::new();
    content.insert("top_kernels".into(), top(databases, "top_kernels", &kernels)?);
    content.insert("top".into(), top(databases, "top", &all)?);
    content.insert("busy".into(), busy(databases)?);
    Ok(content)
}

/// Calls and time per name; the percentage is of the time of all rows of `tables`.
fn top(databases: &[&Connection], view: &str, tables: &[&str]) -> Result<Vec<String>> {
    let mut by_name: BTreeMap<Option<String>, (i64, i64)> = BTreeMap::new();
    let mut whole = 0;
    for database in databases {
        let mut query = database.prepare(&format!("SELECT name, total_calls, total_duration FROM {view}"))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let (calls, ns) = by_name.entry(row.get(0)?).or_default();
            *calls += row.get::<_, i64>(1)?;
            *ns += (row.get::<_, f64>(2)? * 1000.0).round() as i64;
        }
        for table in tables {
            let sql = format!("SELECT coalesce(sum(\"end\" - start), 0) FROM {table}");
            whole += database.query_row(&sql, [], |row| row.get::<_, i64>(0))?;
        }
    }
    let line = |(name, (calls, ns)): (Option<String>, (i64, i64))| {
        let name = name.map_or("NULL".to_owned(), |name| format!("{name:?}"));
        let total = real(ns as f64 / 1000.0);
        let average = real((ns / calls) as f64 / 1000.0);
        let percentage = real(ns as f64 * 100.0 / whole as f64);
        format!(
            "name={name} total_calls={calls} total_duration={total} average={average} percentage={percentage} "
        )
    };
    Ok(by_name.into_iter().map(line).collect())
}

/// Busy time per agent; the wall time is from the first beginning to the last end of all.
fn busy(databases: &[&Connection]) -> Result<Vec<String>> {
    let mut agents = Vec::new();
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    for database in databases {
        let mut query = database.prepare("SELECT type, GpuTime FROM busy")?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        agents.extend(rows.collect::<Result<Vec<(String, i64)>>>()?);
        let sql = "SELECT min(start), max(\"end\") FROM (SELECT start, \"end\" FROM rocpd_kernel_dispatch
                    UNION ALL SELECT start, \"end\" FROM rocpd_memory_copy)";
        let (from, to): (Option<i64>, Option<i64>) =
            database.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        first = first.min(from.unwrap_or(i64::MAX));
        last = last.max(to.unwrap_or(i64::MIN));
    }
    let wall = last.saturating_sub(first);
    let line = |(kind, ns): (String, i64)| {
        let busy = real(ns as f64 * 1.0 / wall as f64);
        format!("type={kind:?} GpuTime={ns} WallTime={wall} Busy={busy} ")
    };
    Ok(agents.into_iter().map(line).collect())
}
