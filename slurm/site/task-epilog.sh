#!/bin/bash
# TaskEpilog: says in the job's output where the log of a task is, if its collector had something to warn of.
#
#   TaskEpilog=/opt/rpd/share/rpd/slurm/site/task-epilog.sh        in slurm.conf
rank=${SLURM_PROCID:-0}
name=${SLURM_JOB_ID:-none}.${SLURM_STEP_ID:-0}
if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then name=$name-r$SLURM_RESTART_COUNT; fi
run=${RPD_OUTPUT:-${SLURM_SUBMIT_DIR:-.}/rpd-out}/${RPD_RUN_ID:-$name}
# Above 1,000 ranks, each thousand has a folder.
for folder in "$run" "$run/$(printf 'ranks-%05d' $((rank / 1000 * 1000)))"; do
    log=$folder/$(printf 'rank-%05d' "$rank").log
    # Nothing is read that another user may have put here.
    if [ -L "$run" ] || [ ! -O "$run" ] || [ -L "$folder" ] || [ -L "$log" ]; then continue; fi
    if [ -f "$log" ] && [ -r "$log" ] && timeout 10 grep -q ' warning: ' "$log" 2>/dev/null; then
        echo "rpd-collect: rank $rank has warnings in $log" >&2
    fi
done
exit 0
