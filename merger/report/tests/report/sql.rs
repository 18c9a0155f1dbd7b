//! What the subcommands report, by SQL alone.

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// The timed rows of all tables: table, process, domain, name, start, end.
const TIMED: &str = "
timed(kind, pid, domain, name, s, e) AS (
    SELECT 'region', r.pid, coalesce(c.string, 'region'), n.string, r.start, r.\"end\"
      FROM rocpd_region r LEFT JOIN rocpd_string n ON n.id = r.name_id
      LEFT JOIN rocpd_event v ON v.id = r.event_id LEFT JOIN rocpd_string c ON c.id = v.category_id
     UNION ALL
    SELECT 'kernel', r.pid, coalesce(c.string, 'kernel'), coalesce(nullif(k.display_name, ''), k.kernel_name), r.start, r.\"end\"
      FROM rocpd_kernel_dispatch r LEFT JOIN rocpd_info_kernel_symbol k ON k.id = r.kernel_id
      LEFT JOIN rocpd_event v ON v.id = r.event_id LEFT JOIN rocpd_string c ON c.id = v.category_id
     UNION ALL
    SELECT 'copy', r.pid, coalesce(c.string, 'copy'), n.string, r.start, r.\"end\"
      FROM rocpd_memory_copy r LEFT JOIN rocpd_string n ON n.id = r.name_id
      LEFT JOIN rocpd_event v ON v.id = r.event_id LEFT JOIN rocpd_string c ON c.id = v.category_id
     UNION ALL
    SELECT 'allocation', r.pid, coalesce(c.string, 'allocation'), r.type, r.start, r.\"end\"
      FROM rocpd_memory_allocate r
      LEFT JOIN rocpd_event v ON v.id = r.event_id LEFT JOIN rocpd_string c ON c.id = v.category_id
), process(id, rank, host, whose) AS (
    SELECT p.id, json_extract(p.extdata, '$.rpd.rank'), n.hostname,
           coalesce(json_extract(p.extdata, '$.rpd.rank'), 'process ' || p.pid || ' (' ||
             iif(n.hostname GLOB 'unknown-????????*', 'host unknown', n.hostname) || ')')
      FROM rocpd_info_process p JOIN rocpd_info_node n ON n.id = p.nid
)";

/// A database that is asked by SQL.
pub(crate) struct SqlRun(Connection);

/// A row of a query.
pub(crate) type SqlRow = Vec<Value>;

impl SqlRun {
    pub(crate) fn open(path: &Path) -> SqlRun {
        SqlRun(Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap())
    }

    pub(crate) fn rows(&self, sql: &str) -> Vec<SqlRow> {
        let mut statement = self.0.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let columns = statement.column_count();
        let read =
            |row: &rusqlite::Row<'_>| (0..columns).map(|place| row.get(place)).collect::<Result<SqlRow, _>>();
        let rows = statement.query_map([], read).unwrap();
        rows.map(|row| row.unwrap_or_else(|error| panic!("{sql}: {error}"))).collect()
    }

    /// Rank or host (`by`; or NULL), domain, name, count, sum, min, p50, p95, p99, max, mean of squares in floating point;
    /// of rows that match a condition.
    pub(crate) fn summary(&self, by: &str, condition: &str) -> Vec<SqlRow> {
        self.rows(&format!(
            "WITH {TIMED}, ranked AS (
                SELECT {by} AS whose, domain, name, e - s AS ns,
                       row_number() OVER (PARTITION BY {by}, domain, name ORDER BY e - s) AS k,
                       count(*) OVER (PARTITION BY {by}, domain, name) AS n
                  FROM timed JOIN process ON process.id = timed.pid WHERE {condition})
             SELECT whose, domain, name, count(*), sum(ns), min(ns),
                    max(CASE WHEN k = (n * 50 + 99) / 100 THEN ns END),
                    max(CASE WHEN k = (n * 95 + 99) / 100 THEN ns END),
                    max(CASE WHEN k = (n * 99 + 99) / 100 THEN ns END),
                    max(ns), sum(1.0 * ns * ns)
               FROM ranked GROUP BY whose, domain, name"
        ))
    }

    /// Rank, first process, span, and the length of the union of MPI calls, RCCL calls, kernels and copies.
    pub(crate) fn ranks(&self) -> Vec<SqlRow> {
        let union = |condition: &str| {
            format!(
                "SELECT own_name, sum(max(0, e - max(s, coalesce(latest, s)))) AS ns FROM (
                    SELECT own_name, s, e, max(e) OVER (PARTITION BY own_name ORDER BY s, e
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
                      FROM own WHERE s < e AND {condition}) GROUP BY own_name"
            )
        };
        self.rows(&format!(
            "WITH {TIMED}, own AS (
                SELECT coalesce('rank ' || rank, 'process ' || process.id) AS own_name, rank, kind, domain, s, e
                  FROM timed JOIN process ON process.id = timed.pid),
              mpi AS ({}), rccl AS ({}), busy AS ({}), copies AS ({})
             SELECT rank, max(max(s, e)) - min(s), coalesce(mpi.ns, 0), coalesce(rccl.ns, 0), coalesce(busy.ns, 0),
                    coalesce(copies.ns, 0)
               FROM own LEFT JOIN mpi USING (own_name) LEFT JOIN rccl USING (own_name) LEFT JOIN busy USING (own_name)
               LEFT JOIN copies USING (own_name)
              GROUP BY own_name",
            union("domain = 'MPI_API'"),
            union("domain = 'RCCL_API'"),
            union("kind = 'kernel'"),
            union("kind = 'copy'"),
        ))
    }

    /// Communicator, function, bytes, number of ranks, count, sum, p50, p95, number of matched ones, p50 and p95 of their
    /// skews; for functions of these names, where each rank runs one program.
    pub(crate) fn collectives(&self, functions: &[&str]) -> Vec<SqlRow> {
        let names: Vec<String> = functions.iter().map(|name| format!("'{name}'")).collect();
        self.rows(&format!(
            "WITH process(id, whose) AS (
                SELECT id, coalesce('rank ' || json_extract(extdata, '$.rpd.rank'), 'process ' || id)
                  FROM rocpd_info_process),
              args AS MATERIALIZED (
                SELECT event_id, max(CASE WHEN name = 'comm' THEN value END) AS comm,
                       max(CASE WHEN name = 'seq' THEN value END) AS seq,
                       max(CASE WHEN name = 'bytes' THEN value END) AS bytes
                  FROM rocpd_arg GROUP BY event_id),
              calls AS MATERIALIZED (
                SELECT whose, n.string AS function, r.start AS s, r.\"end\" - r.start AS ns,
                       a.comm, CAST(a.seq AS INTEGER) AS seq, CAST(a.bytes AS INTEGER) AS bytes
                  FROM rocpd_region r JOIN rocpd_string n ON n.id = r.name_id JOIN process ON process.id = r.pid
                  LEFT JOIN args a ON a.event_id = r.event_id
                 WHERE n.string IN ({})),
              members AS MATERIALIZED (SELECT comm, count(DISTINCT whose) AS ranks FROM calls WHERE seq IS NOT NULL GROUP BY comm),
              instances AS (
                SELECT comm, function, seq, max(bytes) AS bytes, max(s) - min(s) AS skew
                  FROM calls WHERE seq IS NOT NULL GROUP BY comm, function, seq
                HAVING count(*) > 1 AND count(*) = (SELECT ranks FROM members WHERE members.comm = calls.comm)),
              skews AS (
                SELECT *, row_number() OVER (PARTITION BY comm, function, bytes ORDER BY skew) AS k,
                       count(*) OVER (PARTITION BY comm, function, bytes) AS n FROM instances),
              skew AS (
                SELECT comm, function, bytes, n, max(CASE WHEN k = (n * 50 + 99) / 100 THEN skew END) AS p50,
                       max(CASE WHEN k = (n * 95 + 99) / 100 THEN skew END) AS p95
                  FROM skews GROUP BY comm, function, bytes),
              ranked AS (
                SELECT *, row_number() OVER (PARTITION BY comm, function, bytes ORDER BY ns) AS k,
                       count(*) OVER (PARTITION BY comm, function, bytes) AS n FROM calls)
             SELECT c.comm, c.function, c.bytes, count(DISTINCT whose), count(*), sum(ns),
                    max(CASE WHEN k = (c.n * 50 + 99) / 100 THEN ns END),
                    max(CASE WHEN k = (c.n * 95 + 99) / 100 THEN ns END),
                    coalesce(skew.n, 0), skew.p50, skew.p95
               FROM ranked c LEFT JOIN skew ON skew.comm IS c.comm AND skew.function = c.function
                AND skew.bytes IS c.bytes
              GROUP BY c.comm, c.function, c.bytes",
            names.join(", ")
        ))
    }
}
