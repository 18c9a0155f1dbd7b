//! Measures how fast calls are read, against SQL over the same database.
//!
//! `cargo run --release -p rpd-calls --example read_speed -- [CALLS]`
//!
//! Four ranks, each with the same number of `MPI_Isend`, `MPI_Recv`, `MPI_Wait` and `MPI_Allreduce` in a range for
//! each step. Both ways must count the same.

use rpd_calls::{ReadOptions, RunCalls};
use rpd_rocpd::{Guid, Writer};
use rpd_run::RunDatabase;
use rusqlite::Connection;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const GUID: Guid = Guid::from_bits(0x5_9eed);
const RANKS: i64 = 4;
/// Rows of a step of a rank: events, regions, samples and args.
const ROWS: [(&str, i64); 4] =
    [("rocpd_event", 6), ("rocpd_region", 5), ("rocpd_sample", 1), ("rocpd_arg", 13)];

fn main() -> Result<(), Box<dyn Error>> {
    let calls: i64 = std::env::args().nth(1).map_or(Ok(1_000_000), |calls| calls.parse())?;
    let steps = calls / RANKS / 4;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("run.db");
    write_run(&path, steps)?;
    let rows = RANKS * steps * ROWS.iter().map(|(_, rows)| rows).sum::<i64>();
    println!("{rows} rows, {} calls", RANKS * steps * 4);

    for _ in 0..3 {
        let (start, cpu) = (Instant::now(), cpu_time()?);
        let run = RunDatabase::open(&path, None)?;
        let read = RunCalls::read(&run, &ReadOptions::default())?;
        let (wall, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
        println!(
            "read: {wall:.2?}, CPU {cpu:.2?}: {:.1} million rows a second of CPU",
            rows as f64 / cpu.as_secs_f64() / 1e6
        );
        let job = &read.job;
        let sum =
            |count: fn(&rpd_graph::CallTimeline) -> usize| job.timelines.iter().map(count).sum::<usize>();
        let counts = [
            sum(|timeline| timeline.calls.len()),
            sum(|timeline| timeline.message_ends.len()),
            sum(|timeline| timeline.completions.len()),
        ];
        assert_eq!(counts.map(|count| count as i64), [4, 2, 1].map(|each| each * steps * RANKS));
        assert_eq!(i64::from(job.steps), steps);
        assert_eq!(job.timelines[0].message_ends[1].peer, 3);
    }
    let connection = Connection::open(&path)?;
    let (start, cpu) = (Instant::now(), cpu_time()?);
    let counts = count_by_sql(&connection)?;
    let (wall, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
    println!("SQL, counts only: {wall:.2?}, CPU {cpu:.2?}");
    assert_eq!(counts, [4, 2, 1].map(|each| each * steps * RANKS));
    let (start, cpu) = (Instant::now(), cpu_time()?);
    let calls = values_by_sql(&connection)?;
    let (wall, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
    println!("SQL, calls with their values: {wall:.2?}, CPU {cpu:.2?}");
    assert_eq!(calls, 4 * steps * RANKS);
    Ok(())
}

fn write_run(path: &Path, steps: i64) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::create(path, &GUID)?;
    writer.metadata("rpd.version", "0")?;
    writer.commit()?;
    let connection = Connection::open(path)?;
    let sql = |text: &str| connection.execute_batch(&text.replace('%', &GUID.suffix()));
    sql("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF; BEGIN;
        INSERT INTO rocpd_string% (string) VALUES ('MPI_API'), ('MARKER_CORE_RANGE_API'), ('MPI request'), ('step'),
            ('MPI_Isend'), ('MPI_Recv'), ('MPI_Wait'), ('MPI_Allreduce');
        INSERT INTO rocpd_info_node% (hash, machine_id, hostname) VALUES (1, 'machine', 'node');")?;
    for rank in 0..RANKS {
        let (process, done) = (rank + 1, rank * steps);
        let claims: Vec<String> = ROWS
            .iter()
            .map(|(table, rows)| format!("\"{table}\":[{},{}]", done * rows + 1, steps * rows))
            .chain(["rocpd_info_thread", "rocpd_track"].map(|table| format!("\"{table}\":[{process},1]")))
            .collect();
        let stored =
            format!("{{\"rpd\":{{\"rank\":{rank},\"size\":{RANKS},\"rows\":{{{}}}}}}}", claims.join(","));
        // Times of a step are 1 us; regions 0 to 4 are the step and its calls.
        sql(&format!(
            "INSERT INTO rocpd_info_process% (nid, pid, extdata) VALUES (1, {process}, '{stored}');
             INSERT INTO rocpd_info_thread% (nid, pid, tid) VALUES (1, {process}, {process});
             INSERT INTO rocpd_track% (nid, pid, tid, name_id) VALUES (1, {process}, {process}, 3);
             CREATE TEMP TABLE step AS WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
                WHERE i < {steps} - 1) SELECT i FROM n;
             CREATE TEMP TABLE part (k INTEGER);
             INSERT INTO part VALUES (0), (1), (2), (3), (4), (5);
             INSERT INTO rocpd_event% (id, category_id, stack_id, parent_stack_id)
                SELECT ({done} + i) * 6 + k + 1, iif(k = 0, 2, 1),
                    iif(k = 5, ({done} + i) * 6 + 2, ({done} + i) * 6 + k + 1),
                    iif(k = 5, ({done} + i) * 6 + 4, 0)
                FROM step, part ORDER BY 1;
             INSERT INTO rocpd_region% (id, nid, pid, tid, start, end, name_id, event_id)
                SELECT ({done} + i) * 5 + k + 1, 1, {process}, {process}, i * 1000 + k * 100,
                    i * 1000 + iif(k = 0, 1000, k * 100 + 50), k + 4, ({done} + i) * 6 + k + 1
                FROM step, part WHERE k < 5 ORDER BY 1;
             INSERT INTO rocpd_sample% (id, track_id, timestamp, event_id)
                SELECT {done} + i + 1, {process}, i * 1000 + 350, ({done} + i) * 6 + 6 FROM step ORDER BY 1;
             CREATE TEMP TABLE arg (position INTEGER, k INTEGER, name TEXT, value TEXT);
             INSERT INTO arg VALUES
                (0, 1, 'comm', 'MPI_COMM_WORLD'), (1, 1, 'peer', '{next}'), (2, 1, 'tag', '1'), (3, 1, 'bytes', '8000'),
                (4, 1, 'seq', NULL), (0, 2, 'comm', 'MPI_COMM_WORLD'), (1, 2, 'peer', '{before}'), (2, 2, 'tag', '1'),
                (3, 2, 'bytes', '8000'), (4, 2, 'seq', NULL), (0, 4, 'comm', 'MPI_COMM_WORLD'), (1, 4, 'bytes', '8'),
                (2, 4, 'seq', NULL);
             INSERT INTO rocpd_arg% (event_id, position, type, name, value)
                SELECT ({done} + i) * 6 + k + 1, position, 'int', name,
                    ifnull(value, iif(k = 4, i + 1, 2 * i + k))
                FROM step, arg ORDER BY 1, 2;
             DROP TABLE step; DROP TABLE part; DROP TABLE arg;",
            next = (rank + 1) % RANKS,
            before = (rank + RANKS - 1) % RANKS,
        ))?;
    }
    sql("COMMIT")?;
    Ok(())
}

/// Counts calls, message ends and completions.
fn count_by_sql(connection: &Connection) -> rusqlite::Result<[i64; 3]> {
    let count = |sql: &str| connection.query_row(&sql.replace('%', &GUID.suffix()), [], |row| row.get(0));
    let queries = [
        "SELECT count(*) FROM rocpd_region% r JOIN rocpd_event% e ON e.id = r.event_id
            JOIN rocpd_string% c ON c.id = e.category_id WHERE c.string = 'MPI_API'",
        "SELECT count(*) FROM rocpd_arg% a JOIN rocpd_event% e ON e.id = a.event_id
            JOIN rocpd_string% c ON c.id = e.category_id WHERE a.name = 'peer' AND c.string = 'MPI_API'",
        "SELECT count(*) FROM rocpd_sample% s JOIN rocpd_track% t ON t.id = s.track_id
            JOIN rocpd_string% n ON n.id = t.name_id JOIN rocpd_event% e ON e.id = s.event_id
            WHERE n.string = 'MPI request' AND e.parent_stack_id > 0",
    ];
    Ok([count(queries[0])?, count(queries[1])?, count(queries[2])?])
}

/// Reads every call with its values, in the order of threads and times.
fn values_by_sql(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT r.tid, r.start, r.end, n.string, e.stack_id,
            max(iif(a.name = 'comm', a.value, NULL)), max(iif(a.name = 'peer', a.value, NULL)),
            max(iif(a.name = 'tag', a.value, NULL)), max(iif(a.name = 'bytes', a.value, NULL)),
            max(iif(a.name = 'seq', a.value, NULL))
          FROM rocpd_region% r JOIN rocpd_event% e ON e.id = r.event_id JOIN rocpd_string% n ON n.id = r.name_id
            JOIN rocpd_string% c ON c.id = e.category_id LEFT JOIN rocpd_arg% a ON a.event_id = e.id
          WHERE c.string = 'MPI_API' GROUP BY r.id ORDER BY r.tid, r.start";
    let mut statement = connection.prepare(&sql.replace('%', &GUID.suffix()))?;
    let mut rows = statement.query([])?;
    let mut calls = 0;
    while let Some(row) = rows.next()? {
        let _: i64 = row.get(1)?;
        calls += 1;
    }
    Ok(calls)
}

/// Returns the time that all threads have run. Linux counts it in hundredths of a second.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, is the only field that may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).ok_or("no times").map(|ticks| ticks.parse::<u64>());
    Ok(Duration::from_millis((ticks(11)?? + ticks(12)??) * 10))
}
