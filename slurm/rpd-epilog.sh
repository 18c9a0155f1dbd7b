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
#   RPD_EPILOG_SECONDS   most seconds of all merges (default: 1500, and never more than the job has left, where Slurm tells)
#   RPD_EPILOG_LAST_SECONDS  the same after TERM, which is followed by KILL after Slurm's KillWait (default: 25)
#   RPD_EPILOG_MERGE     command that merges (default: rpd-merge); such as "srun --overlap --mpi=pmix rpd-merge"
#   RPD_EPILOG_ELSEWHERE folder for the database where nothing can be written to that of the run, as when it is full
#                        (default: the one that the job was submitted from)
#   RPD_EPILOG_SPLIT     so many Perfetto traces beside the database (default: 0)
#   RPD_EPILOG_ARGS      more options of rpd-merge, such as "--align collectives"
#
# Needs bash 4.4; in another shell the job runs, and nothing is merged. A trap for EXIT, USR1 or TERM of the script itself has to come
# behind the line that sources this, and takes the place of ours. Behind a pipe, as in `rpd_run ... | tee log`, USR1 is not heard.
#
# It never fails the job: what became of a merge is in merge.status in the folder of the run. Calling it again is
# harmless: who comes second finds nothing to do, or merges what has come since.

if [ -z "${BASH_VERSION:-}" ]; then
    rpd_run() { "$@"; }
    echo "rpd-epilog: this shell is not bash: merge with 'rpd-merge' behind the job" >&2
    # shellcheck disable=SC2317  # it is sourced
    return 0 2>/dev/null || exit 0
fi

# Folders of runs of this job: those of srun have its number, others a file that says it.
rpd_runs() {
    # The script that sourced this may have turned them off.
    set +f
    shopt -u failglob
    local root=${RPD_OUTPUT:-${SLURM_SUBMIT_DIR:-$PWD}/rpd-out} job=${RPD_JOB_ID:-${SLURM_JOB_ID:-none}} run
    for run in "$root/$job".* "$root"/*/"slurm-job.$job"; do
        run=${run%/slurm-job."$job"}
        if [ -d "$run" ]; then printf '%s\0' "$run"; fi
    done
}

# rpd_merge SECONDS RUN...: each of them, one after the other, in that time altogether.
rpd_merge() {
    local end=$((SECONDS + $1)) run name
    shift
    for run in "$@"; do
        name=${run%/}
        name=rpd-${name##*/}
        rpd_merge_one "$end" "$run" "$name.db"
        if [ "${RPD_EPILOG_SPLIT:-0}" != 0 ]; then
            rpd_merge_one "$end" "$run" "$name-traces" --split-by-time "$RPD_EPILOG_SPLIT"
        fi
    done
    return 0
}

# rpd_merge_one END RUN NAME [OPTION]...: until END; if the run's folder cannot take it, as NAME in another one.
rpd_merge_one() {
    local end=$1 run=$2 name=$3 status=0
    shift 3
    rpd_try "$end" "$@" -- "$run" || status=$?
    case $status in
    0 | [345] | 124) ;;
    *)
        # No step could be started, or not with this MPI.
        if [ "${RPD_EPILOG_MERGE:-rpd-merge}" != rpd-merge ]; then
            echo "rpd-epilog: '$RPD_EPILOG_MERGE' failed with $status: merging in one process" >&2
            status=0
            RPD_EPILOG_MERGE=rpd-merge rpd_try "$end" "$@" -- "$run" || status=$?
        fi
        ;;
    esac
    # Nothing can be written there: it is full, or somebody else's.
    if [ "$status" = 5 ] && [ -n "${RPD_EPILOG_ELSEWHERE:=${SLURM_SUBMIT_DIR:-}}" ]; then
        echo "rpd-epilog: merging $run into $RPD_EPILOG_ELSEWHERE/$name" >&2
        status=0
        rpd_try "$end" "$@" -o "$RPD_EPILOG_ELSEWHERE/$name" -- "$run" || status=$?
    fi
    if [ "$status" != 0 ]; then echo "rpd-epilog: $run is not merged ($status): run 'rpd-merge $run'" >&2; fi
    return 0
}

# rpd_try END WORD...: rpd-merge with these.
rpd_try() {
    local left=$(($1 - SECONDS)) merge more
    shift
    if [ "$left" -lt 1 ]; then return 124; fi
    IFS=$' \t\n' read -ra merge <<<"${RPD_EPILOG_MERGE:-rpd-merge}"
    IFS=$' \t\n' read -ra more <<<"${RPD_EPILOG_ARGS:-}"
    # It ends itself in time, and says so; the other one is for the case that it hangs.
    timeout --kill-after=5 "$((left + 5))" "${merge[@]}" --epilog --lease "$left" "${more[@]}" "$@" >&2 </dev/null
}

# A number of seconds that somebody gave, or another one.
rpd_number() {
    case $1 in '' | *[!0-9]*) echo "$2" ;; *) echo "$1" ;; esac
}

# Seconds until the job's time is over, if Slurm says so, less some to end in good order.
rpd_left() {
    local most=$1 left
    case ${SLURM_JOB_END_TIME:-} in
    '' | *[!0-9]*) ;;
    *)
        left=$((SLURM_JOB_END_TIME - $(date +%s) - 15))
        if [ "$left" -lt "$most" ]; then most=$left; fi
        ;;
    esac
    echo "$most"
}

rpd_epilog() {
    local seconds=$1 runs=()
    mapfile -d '' -t runs < <(rpd_runs)
    if [ "${#runs[@]}" -gt 0 ]; then rpd_merge "$seconds" "${runs[@]}"; fi
}

# rpd_run COMMAND...: runs it and returns its status. Signals to the script reach it at once.
rpd_run() {
    local status=0 again
    # In the background, with the input and the signals that it would have in front.
    if [ "$(type -t -- "$1")" = file ]; then
        (
            trap - INT QUIT
            exec "$@"
        ) <&0 &
    else
        "$@" <&0 &
    fi
    rpd_child=$!
    wait "$rpd_child" || status=$?
    # A trap ends `wait`, and may take longer than the child.
    while [ -n "${rpd_heard:-}" ]; do
        rpd_heard=
        again=0
        wait "$rpd_child" || again=$?
        if [ "$again" != 127 ]; then status=$again; fi
    done
    rpd_child=
    return "$status"
}

# The batch system says that the time is nearly over: the program hears it, and what is there is merged.
rpd_warned() {
    rpd_heard=1
    if [ -n "${rpd_child:-}" ]; then kill -USR1 "$rpd_child" 2>/dev/null || true; fi
    sleep "$(rpd_number "${RPD_EPILOG_GRACE:-}" 5)" || true
    rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")"
}

# The job is cancelled or out of time: everything dies soon, and no step can be started any more.
rpd_cancelled() {
    trap '' TERM
    local end left
    # KILL follows after 30 s, or what the site has for that.
    end=$((SECONDS + $(rpd_number "${RPD_EPILOG_LAST_SECONDS:-}" 25)))
    if [ -n "${rpd_child:-}" ]; then
        kill -TERM "$rpd_child" 2>/dev/null || true
        wait "$rpd_child" 2>/dev/null || true
    fi
    trap - EXIT
    left=$((end - SECONDS))
    # One process, here; the database alone.
    RPD_EPILOG_MERGE=rpd-merge RPD_EPILOG_SPLIT=0
    rpd_epilog "$((left > 1 ? left : 1))"
    trap - TERM
    kill -TERM $$
}

rpd_ended() {
    local status=$?
    # The program has ended: nothing that comes now is for it, nor changes how it ended.
    trap '' USR1
    # shellcheck disable=SC2064  # the status of now
    trap "exit $status" TERM
    trap - EXIT
    rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")" || true
    exit "$status"
}

if [ "${BASH_SOURCE[0]}" != "$0" ]; then
    # rpd-collect writes all it has when it hears that, and the program lives on.
    export RPD_WARN_SIGNAL=${RPD_WARN_SIGNAL:-USR1}
    trap rpd_ended EXIT
    trap rpd_warned USR1
    trap rpd_cancelled TERM
elif [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
elif [ $# -gt 0 ]; then
    rpd_merge "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")" "$@"
else
    rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")"
fi
