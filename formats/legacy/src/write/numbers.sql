-- Names of processes and GPUs in the merged file, as temporary tables. :pid and :gpu are the strides.

-- Nodes count from 0.
CREATE TEMP TABLE node AS SELECT id AS nid, row_number() OVER (ORDER BY id) - 1 AS n FROM temp.info_node;
CREATE UNIQUE INDEX temp.node_id ON node (nid);

CREATE TEMP TABLE thread (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, tid INTEGER NOT NULL);
INSERT INTO thread
SELECT thr.id, proc.pid + node.n * :pid, thr.tid + node.n * :pid
  FROM temp.info_thread thr
  JOIN temp.info_process proc ON proc.id = thr.pid
  JOIN node ON node.nid = proc.nid;

-- The number of a GPU among those of its node, as the process counts them. CPUs have none.
CREATE TEMP TABLE agent (id INTEGER PRIMARY KEY, kind TEXT, device INTEGER NOT NULL, node INTEGER NOT NULL);
INSERT INTO agent
SELECT a.id, lower(coalesce(a.type, '')), coalesce(a.type_index, a.logical_index, a.absolute_index, 0), node.n
  FROM temp.info_agent a
  JOIN temp.info_process proc ON proc.id = a.pid
  JOIN node ON node.nid = proc.nid;

-- Queues of a `.rpd` keep their numbers. Others are numbered through on their node, or in their process where a
-- node has too many. `gpu` is that of the `.rpd`.
CREATE TEMP TABLE counted AS
SELECT q.id AS id, node.n AS node, row_number() OVER (PARTITION BY node.n ORDER BY q.id) - 1 AS on_node,
       row_number() OVER (PARTITION BY q.pid ORDER BY q.id) - 1 AS in_process,
       iif(q.extdata LIKE '%"rpd"%' AND json_valid(q.extdata), json_extract(q.extdata, '$.rpd.queue'), NULL) AS kept,
       iif(q.extdata LIKE '%"rpd"%' AND json_valid(q.extdata), json_extract(q.extdata, '$.rpd.gpu'), NULL) AS gpu
  FROM temp.info_queue q
  JOIN temp.info_process proc ON proc.id = q.pid
  JOIN node ON node.nid = proc.nid;
UPDATE counted SET kept = NULL WHERE typeof(kept) <> 'integer' OR kept NOT BETWEEN 0 AND :gpu - 1;
UPDATE counted SET gpu = NULL WHERE typeof(gpu) <> 'integer' OR gpu NOT BETWEEN 0 AND :gpu - 1;

CREATE TEMP TABLE queue (id INTEGER PRIMARY KEY, node INTEGER NOT NULL, number INTEGER NOT NULL, is_kept INTEGER NOT NULL, gpu INTEGER);
INSERT INTO queue
SELECT c.id, c.node, CASE WHEN nodes.are_kept THEN c.kept WHEN (SELECT max(on_node) FROM counted) < :gpu THEN c.on_node ELSE c.in_process END,
       nodes.are_kept, c.gpu
  FROM counted c
  JOIN (SELECT node, count(*) = count(kept) AS are_kept FROM counted GROUP BY node) nodes
       ON nodes.node = c.node;

-- What a `.rpd` said of its calls that RocPD has no column for; see the reading side.
CREATE TEMP TABLE told (event_id INTEGER PRIMARY KEY, domain TEXT, category TEXT, kernelapi INTEGER, copyapi INTEGER);
INSERT INTO told
SELECT id, json_extract(extdata, '$.rpd.domain'), json_extract(extdata, '$.rpd.category'),
       json_extract(extdata, '$.rpd.kernelapi'), json_extract(extdata, '$.rpd.copyapi')
  FROM temp.event WHERE extdata LIKE '%"rpd"%' AND json_valid(extdata);
-- The rows of rocpd_kernelapi and rocpd_copyapi are args; what is empty there has none.
CREATE TEMP TABLE told_arg (event_id INTEGER NOT NULL, of TEXT NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, value TEXT);
INSERT INTO told_arg
SELECT * FROM (
    SELECT a.event_id, iif(a.position < coalesce(told.kernelapi, 0), 'kernelapi', 'copyapi') AS of, a.position, a.name, a.value
      FROM temp.arg a JOIN told ON told.event_id = a.event_id
     WHERE a.position < coalesce(told.kernelapi, 0) + coalesce(told.copyapi, 0)) found
 WHERE (of = 'kernelapi' AND name IN ('stream', 'gridX', 'gridY', 'gridZ', 'workgroupX', 'workgroupY', 'workgroupZ',
            'groupSegmentSize', 'privateSegmentSize', 'kernelName'))
    OR (of = 'copyapi' AND name IN ('stream', 'size', 'width', 'height', 'kind', 'dst', 'src', 'dstDevice', 'srcDevice', 'sync', 'pinned'));
CREATE INDEX temp.told_arg_event ON told_arg (event_id, position);
