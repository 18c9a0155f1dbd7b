#!/bin/bash
# TaskEpilog: says in the job's output where the log of a task is, if its collector had something to warn of.
#
#   TaskEpilog=/opt/rpd/share/rpd/slurm/site/task-epilog.sh        in slurm.conf
root=${RPD_OUTPUT:-${SLURM_SUBMIT_DIR:-.}/rpd-out}
log=$root/${SLURM_JOB_ID:-none}.${SLURM_STEP_ID:-0}/rank-$(printf '%05d' "${SLURM_PROCID:-0}").log
if [ -r "$log" ] && grep -q ' warning: ' "$log" 2>/dev/null; then
    echo "rpd-collect: rank ${SLURM_PROCID:-0} has warnings in $log" >&2
fi
exit 0
