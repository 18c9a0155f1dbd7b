-- Who is called what in the merged file, as temporary tables. :pid and :gpu are the strides.

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

-- Queues are numbered through on their node, or in their process where a node has too many.
CREATE TEMP TABLE queue (id INTEGER PRIMARY KEY, node INTEGER NOT NULL, on_node INTEGER NOT NULL, in_process INTEGER NOT NULL);
INSERT INTO queue
SELECT q.id, node.n, row_number() OVER (PARTITION BY node.n ORDER BY q.id) - 1,
       row_number() OVER (PARTITION BY q.pid ORDER BY q.id) - 1
  FROM temp.info_queue q
  JOIN temp.info_process proc ON proc.id = q.pid
  JOIN node ON node.nid = proc.nid;
