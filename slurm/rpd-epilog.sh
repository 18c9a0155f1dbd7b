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
#   rpd-epilog.sh --job JOB               # those of another job, of a task of an array (4711_2), or of all its tasks (4711);
#                                         # ends with 4 if there is none, and else as the merges did
#
#   RPD_JOB_ID           job of these runs (default: this job)
#   RPD_OUTPUT           where runs are (default: rpd-out in the folder that the job was submitted from); the line above exports
#                        it for rpd-collect, as an absolute path
#   RPD_EPILOG_SECONDS   most seconds of all merges (default: 1500, and never more than the job has left, where Slurm tells)
#   RPD_EPILOG_LAST_SECONDS  the same after TERM, which is followed by KILL after Slurm's KillWait (default: 25)
#   RPD_EPILOG_MERGE     command that merges (default: rpd-merge); such as "srun --overlap --mpi=pmix rpd-merge"
#   RPD_EPILOG_ELSEWHERE folder for the database where nothing can be written to that of the run, as when it is full
#                        (default: the one that the job was submitted from)
#   RPD_EPILOG_SPLIT     so many Perfetto traces beside the database (default: 0)
#   RPD_EPILOG_ARGS      more options of rpd-merge, such as "--align collectives"
#   RPD_EPILOG_FORWARD   1: what rpd_run has started hears USR1, too (default: 0). srun hands it to all ranks, where rpd-collect keeps
#                        it from a program without a handler; but a function, a shell or a waiting step ends by it
#   RPD_EPILOG_GRACE     seconds for them before the merge (default: 5)
#
# On USR1, as of --signal=B:USR1@180, what is there is merged and the program runs on. Steps beside each other go into a function:
#
#   both() { srun rpd-collect -- ./a & srun rpd-collect -- ./b & wait; }
#   rpd_run both
#
# since a `wait` of the script itself ends when USR1 comes. Needs bash 4.4; in another shell the job runs, and nothing is merged. A trap for
# EXIT, USR1 or TERM of the script itself has to come after the line that sources this, and replaces ours. In a pipe, as in
# `rpd_run ... | tee log`, USR1 is not heard.
#
# It never fails the job: what became of a merge is in merge.status in the folder of the run. Calling it again is
# harmless: the second merge finds nothing to do, or merges what has come since.

rpd_lacks=
if [ -z "${BASH_VERSION:-}" ]; then
    rpd_lacks='this shell is not bash'
else
    case $BASH_VERSION in
    [1-3].* | 4.[0-3].*) rpd_lacks="bash $BASH_VERSION is too old" ;;
    # No process substitution.
    4.* | 5.0.*) if shopt -qo posix; then rpd_lacks="bash $BASH_VERSION as sh lacks what this takes"; fi ;;
    esac
fi
if [ -n "$rpd_lacks" ]; then
    rpd_run() { "$@"; }
    echo "rpd-epilog: $rpd_lacks; merge with 'rpd-merge' after the job" >&2
    # shellcheck disable=SC2317  # it is sourced
    return 0 2>/dev/null || exit 0
fi

# The job, and where its runs are.
rpd_job() { echo "${RPD_JOB_ID:-${SLURM_JOB_ID:-none}}"; }
rpd_root() { echo "${RPD_OUTPUT:-${SLURM_SUBMIT_DIR:-$PWD}/rpd-out}"; }

# Folders of runs of this job: those of srun have its number, others a file that says it.
rpd_runs() {
    # The script that sourced this may have turned them off.
    set +f
    shopt -u failglob
    local GLOBIGNORE='' root job run
    root=$(rpd_root) job=$(rpd_job)
    for run in "$root/$job".* "$root"/*/"slurm-job.$job"; do
        run=${run%/slurm-job."$job"}
        if [ -d "$run" ] && rpd_is_own "$run"; then printf '%s\0' "$run"; fi
    done
    # A task of an array is a job of its own, and asks for its own runs alone.
    if [ -z "${rpd_named:-}" ]; then return 0; fi
    for run in "$root"/*/"slurm-array.$job" "$root"/*/"slurm-array.${job}_"*; do
        # The last task has the number of the array, and was found above.
        case $run in "$root/$job".*) continue ;; esac
        if [ -f "${run%/*}/slurm-job.$job" ]; then continue; fi
        if [ -f "$run" ] && rpd_is_own "${run%/*}"; then printf '%s\0' "${run%/slurm-array.*}"; fi
    done
}

# Others may write beside the runs: neither a folder of theirs nor what a link leads to is a run of this job.
rpd_is_own() {
    if [ ! -L "$1" ] && [ -O "$1" ]; then return 0; fi
    echo "rpd-epilog: $1 is a link, or belongs to another user: it is not merged" >&2
    return 1
}

# rpd_merge SECONDS RUN...: each of them, one after the other, in that time altogether.
rpd_merge() {
    local end=$((SECONDS + $1)) run name split
    split=$(rpd_number "${RPD_EPILOG_SPLIT:-}" 0)
    shift
    for run in "$@"; do
        name=${run%/}
        name=rpd-${name##*/}
        rpd_merge_one "$end" "$run" "$name.db"
        # The first merge has waited for late ranks.
        if [ "$split" != 0 ]; then RPD_MERGE_WAIT=0 rpd_merge_one "$end" "$run" "$name-traces" --split-by-time "$split"; fi
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
    if [ "$status" != 0 ]; then
        echo "rpd-epilog: $run is not merged ($status): run: rpd-merge $*${1:+ }$(printf %q "$run")" >&2
        rpd_worst=$status
    fi
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

# A number that somebody gave, or another one.
rpd_number() {
    case $1 in '' | *[!0-9]* | ???????*) echo "$2" ;; *) echo "$((10#$1))" ;; esac
}

# Seconds until the job's time is over, if Slurm says so, less some to end in good order.
rpd_left() {
    local most=$1 left job told end=${SLURM_JOB_END_TIME:-}
    # Slurm before 23.02 does not say it by itself.
    if [ -z "$end" ] && [ -n "${SLURM_JOB_ID:-}" ]; then
        while IFS=' ' read -r job told; do
            # An array has the number of its last task.
            case $job,$told in
            "$SLURM_JOB_ID",[0-9]*T*:*) end=$(date -d "$told" +%s 2>/dev/null) || end= ;;
            esac
        done < <(SLURM_TIME_FORMAT=standard timeout 5 squeue --noheader --jobs="$SLURM_JOB_ID" --format='%A %e' 2>/dev/null || true)
    fi
    case $end in
    '' | *[!0-9]*) ;;
    *)
        left=$((end - $(date +%s)))
        # Past it, the site lets jobs go on.
        if [ "$left" -gt 0 ]; then
            left=$((left > 20 ? left - 15 : 5))
            if [ "$left" -lt "$most" ]; then most=$left; fi
        fi
        ;;
    esac
    echo "$most"
}

rpd_epilog() {
    local seconds=$1 runs=()
    mapfile -d '' -t runs < <(rpd_runs)
    if [ "${#runs[@]}" -gt 0 ]; then
        rpd_merge "$seconds" "${runs[@]}"
    else
        rpd_worst=4
        echo "rpd-epilog: no run of job $(rpd_job) in $(rpd_root): nothing is merged; rpd-collect writes to \$RPD_OUTPUT" >&2
    fi
}

# rpd_run COMMAND...: runs it and returns its status. Signals to the script reach it at once.
rpd_run() {
    local status=0 again
    # A signal may come as soon as it runs.
    rpd_kind=$(type -t -- "$1") || rpd_kind=
    # In the background, with the input and the signals that it would have in front.
    if [ "$rpd_kind" = file ]; then
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

# The batch system says that the time is nearly over: what is there is merged. That is all but the last second; the program is none
# of our business, unless somebody wants it to hear the signal.
rpd_warned() {
    rpd_heard=1
    if [ "$(rpd_number "${RPD_EPILOG_FORWARD:-}" 0)" != 0 ] && [ -n "${rpd_child:-}" ]; then
        kill -USR1 "$rpd_child" 2>/dev/null || true
        sleep "$(rpd_number "${RPD_EPILOG_GRACE:-}" 5)" || true
    fi
    # Ranks that run on have no end to wait for. A message that finds no room on the disk ends no job.
    RPD_MERGE_WAIT=0 rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")" || true
}

# The last merge before everything is killed: in one process, here; the database alone.
rpd_last() {
    RPD_EPILOG_MERGE=rpd-merge RPD_EPILOG_SPLIT=0
    export RPD_MERGE_WAIT=0
    rpd_epilog "$1" || true
}

# Asks what `rpd_run` has started to end. srun kills its step at once when it gets TERM, so steps are asked by Slurm: which does it by
# itself when the job ends, but not if the script alone got the signal, as of --signal=B:TERM@120.
rpd_end_child() {
    local job told name='' state=''
    read -r name 2>/dev/null <"/proc/$rpd_child/comm" || true
    if { [ "$name" = srun ] || [ "$rpd_kind" = function ]; } && [ -n "${SLURM_JOB_ID:-}" ]; then
        while IFS=' ' read -r job told; do
            if [ "$job" = "$SLURM_JOB_ID" ]; then state=$told; fi
        done < <(timeout 3 squeue --noheader --jobs="$SLURM_JOB_ID" --format='%A %T' 2>/dev/null || true)
    fi
    case $state in
    '') ;;
    # SIGNALING for a moment, while the controller waits for the answer to the signal that the script got.
    RUNNING | SIGNALING) if timeout 3 scancel --signal=TERM "$SLURM_JOB_ID" 2>/dev/null; then return 0; fi ;;
    *) return 0 ;;
    esac
    kill -TERM "$rpd_child" 2>/dev/null || true
}

# The job is cancelled or out of time: everything dies soon, and no step can be started any more.
rpd_cancelled() {
    trap '' TERM
    local last end left
    # KILL follows after 30 s, or what the site has for that.
    last=$(rpd_number "${RPD_EPILOG_LAST_SECONDS:-}" 25)
    end=$((SECONDS + last))
    if [ -n "${rpd_child:-}" ]; then
        rpd_end_child
        # One that does not end, or takes its time, has most of it; what there is is merged in the rest.
        while kill -0 "$rpd_child" 2>/dev/null && [ $((end - SECONDS)) -gt $((last * 2 / 5)) ]; do sleep 0.1 || true; done
        kill -TERM "$rpd_child" 2>/dev/null || true
    fi
    trap - EXIT
    left=$((end - SECONDS))
    rpd_last "$((left > 1 ? left : 1))"
    trap - TERM
    kill -TERM $$
}

# The same when the program had ended before: its status stays.
rpd_cancelled_late() {
    trap '' TERM
    trap - EXIT
    rpd_last "$(rpd_number "${RPD_EPILOG_LAST_SECONDS:-}" 25)"
    exit "$1"
}

rpd_ended() {
    local status=$?
    # The program has ended: nothing that comes now is for it, nor changes how it ended.
    trap '' USR1
    # shellcheck disable=SC2064  # the status of now
    trap "rpd_cancelled_late $status" TERM
    trap - EXIT
    rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")" || true
    exit "$status"
}

if [ "${BASH_SOURCE[0]}" != "$0" ]; then
    # Where rpd-collect writes and where this looks is one folder, wherever the script goes.
    RPD_OUTPUT=$(rpd_root)
    case $RPD_OUTPUT in /*) ;; *) RPD_OUTPUT=$PWD/$RPD_OUTPUT ;; esac
    export RPD_OUTPUT
    # rpd-collect writes all it has when it hears that, and the program lives on.
    if [ "$(rpd_number "${RPD_EPILOG_FORWARD:-}" 0)" != 0 ]; then export RPD_WARN_SIGNAL=${RPD_WARN_SIGNAL:-USR1}; fi
    trap rpd_ended EXIT
    trap rpd_warned USR1
    trap rpd_cancelled TERM
elif [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
elif [ "${1:-}" = --job ] && [ $# -eq 2 ] && [ -n "$2" ]; then
    RPD_JOB_ID=$2 rpd_named=1
    # The site merges what asked for it, and nothing else that has its number.
    if [ -n "${RPD_EPILOG_TASK:-}" ]; then rpd_named=; fi
    rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")"
    exit "${rpd_worst:-0}"
elif [[ ${1:-} = -* ]]; then
    echo "usage: rpd-epilog.sh [RUN]... | --job JOB | --help" >&2
    exit 2
elif [ $# -gt 0 ]; then
    rpd_merge "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")" "$@"
else
    rpd_epilog "$(rpd_left "$(rpd_number "${RPD_EPILOG_SECONDS:-}" 1500)")"
fi
