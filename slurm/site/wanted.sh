#!/bin/bash
# Whether a job wants its runs merged; run as the job's owner.
#
#   wanted.sh FOLDER JOB
for run in "$1/$2".* "$1"/*/"slurm-job.$2"; do
    run=${run%/slurm-job."$2"}
    # Others may write beside the run: neither theirs nor what a link leads to is a run of this job.
    if [ -L "$run" ] || [ ! -O "$run" ]; then continue; fi
    if [ -f "$run/merge.wanted" ] && [ ! -L "$run/merge.wanted" ]; then exit 0; fi
done
exit 1
