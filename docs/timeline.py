#!/usr/bin/env python3
"""Draws the picture of the README: a few steps of every rank, from a merged database.

    python3 docs/timeline.py target/quickstart/RUN/trace.db > docs/timeline.svg
"""
import sqlite3
import sys
from xml.sax.saxutils import escape

STEPS = (8, 11)
PHASES = {"data": "#8d99ae", "forward": "#4c78a8", "backward": "#72b7b2", "allreduce": "#f58518", "step": "#54a24b"}
WIDTH, LEFT, ROW, TOP = 960, 70, 30, 34

QUERY = """
    select json_extract(P.extdata, '$.rpd.rank') rank, S.string name, R.start, R.end
    from rocpd_region R
    join rocpd_info_process P on P.id = R.pid
    join rocpd_string S on S.id = R.name_id
    where S.string in ({}) order by R.start
"""


def main(path):
    names = list(PHASES)
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = db.execute(QUERY.format(",".join("?" * len(names))), names).fetchall()
    ranks = sorted({row[0] for row in rows})
    begins = sorted(row[2] for row in rows if row[0] == ranks[0] and row[1] == "data")
    low, high = begins[STEPS[0]], begins[STEPS[1]]
    scale = (WIDTH - LEFT - 10) / (high - low)
    height = TOP + ROW * len(ranks) + 36
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    at = LEFT
    for name, colour in PHASES.items():
        out.append(f'<rect x="{at}" y="8" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{at + 17}" y="18">{escape(name)}</text>')
        at += 100
    for number, rank in enumerate(ranks):
        out.append(f'<text x="8" y="{TOP + ROW * number + 18}">rank {rank}</text>')
    for tick in range(0, int((high - low) / 1e6) + 1, 20):
        x = LEFT + tick * 1e6 * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{height - 24}" stroke="#ddd"/>')
        if x < WIDTH - 45:
            out.append(f'<text x="{x:.1f}" y="{height - 10}" fill="#666">{tick} ms</text>')
    for rank, name, start, end in rows:
        if end < low or start > high:
            continue
        x = LEFT + (max(start, low) - low) * scale
        width = max((min(end, high) - max(start, low)) * scale, 0.6)
        y = TOP + ROW * ranks.index(rank)
        out.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{PHASES[name]}">'
            f"<title>rank {rank} {escape(name)} {(end - start) / 1e6:.2f} ms</title></rect>"
        )
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
