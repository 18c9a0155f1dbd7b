#!/usr/bin/env bash
# Merges what rpd-collect has recorded, at the end of a batch job: also of one that is cancelled or out of time.
#
# In a job's script, as the templates beside this file have it:
#
#   . rpd-epilog.sh                       # sets traps for the end, USR1 and TERM
#   rpd_run srun rpd-collect ... -- ./simulation
#
# By itself, in a step of its own or in a job that depends on the first one:
#
#   rpd-epilog.sh [RUN]...                # folders of runs; without any, those of this job below $RPD_OUTPUT
#
#   RPD_JOB_ID           whose runs these are (default: this job)
#   RPD_OUTPUT           where runs are (default: rpd-out in the folder that the job was submitted from)
#   RPD_EPILOG_SECONDS   most seconds of a merge (default: 1500; 25 after TERM, which is followed by KILL after 30)
#   RPD_EPILOG_MERGE     command that merges (default: rpd-merge); such as "srun --overlap --mpi=pmix rpd-merge"
#   RPD_EPILOG_ARGS      more options for it, such as "--split-by-time 32"
#
# It never fails the job: what became of a merge is in merge.status in the folder of the run. Calling it again is
# harmless: who comes second finds nothing to do, or merges what has come since.

# Folders of runs of this job.
rpd_runs() {
    local root=${RPD_OUTPUT:-${SLURM_SUBMIT_DIR:-$PWD}/rpd-out} job=${RPD_JOB_ID:-${SLURM_JOB_ID:-none}} run
    for run in "$root/$job".* "$root/job-$job-"*; do
        if [ -d "$run" ]; then printf '%s\0' "$run"; fi
    done
}

# rpd_merge SECONDS RUN...: each of them, one after the other, in that time altogether.
rpd_merge() {
    local end=$((SECONDS + $1)) run left merge more
    shift
    read -ra merge <<<"${RPD_EPILOG_MERGE:-rpd-merge}"
    read -ra more <<<"${RPD_EPILOG_ARGS:-}"
    for run in "$@"; do
        left=$((end - SECONDS))
        if [ "$left" -lt 1 ]; then
            echo "rpd-epilog: no time left for $run: run 'rpd-merge $run'" >&2
            continue
        fi
        # It ends itself in time, and says so; the other one is for the case that it hangs.
        timeout --kill-after=5 "$((left + 5))" "${merge[@]}" --epilog --lease "$left" "${more[@]}" "$run" >&2 ||
            echo "rpd-epilog: rpd-merge failed with $?: see $run/merge.status" >&2
    done
    return 0
}

rpd_epilog() {
    local seconds=$1 runs=()
    mapfile -d '' -t runs < <(rpd_runs)
    if [ "${#runs[@]}" -gt 0 ]; then rpd_merge "$seconds" "${runs[@]}"; fi
}

# rpd_run COMMAND...: runs it and returns its status. Signals to the script reach it at once.
rpd_run() {
    local status=0
    "$@" &
    rpd_child=$!
    wait "$rpd_child" || status=$?
    # A trap ends `wait` before the child has ended.
    while kill -0 "$rpd_child" 2>/dev/null; do
        status=0
        wait "$rpd_child" || status=$?
    done
    rpd_child=
    return "$status"
}

# The batch system says that the time is nearly over: the program hears it, and what is there is merged.
rpd_warned() {
    if [ -n "${rpd_child:-}" ]; then kill -USR1 "$rpd_child" 2>/dev/null || true; fi
    sleep "${RPD_EPILOG_GRACE:-5}"
    rpd_epilog "${RPD_EPILOG_SECONDS:-1500}"
}

# The job is cancelled: everything dies soon.
rpd_cancelled() {
    trap '' TERM
    if [ -n "${rpd_child:-}" ]; then
        kill -TERM "$rpd_child" 2>/dev/null || true
        wait "$rpd_child" 2>/dev/null || true
    fi
    trap - EXIT
    rpd_epilog "${RPD_EPILOG_SECONDS:-25}"
    trap - TERM
    kill -TERM $$
}

rpd_ended() {
    local status=$?
    trap - EXIT
    rpd_epilog "${RPD_EPILOG_SECONDS:-1500}"
    exit "$status"
}

if [ "${BASH_SOURCE[0]}" != "$0" ]; then
    trap rpd_ended EXIT
    trap rpd_warned USR1
    trap rpd_cancelled TERM
elif [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
elif [ $# -gt 0 ]; then
    rpd_merge "${RPD_EPILOG_SECONDS:-1500}" "$@"
else
    rpd_epilog "${RPD_EPILOG_SECONDS:-1500}"
fi
