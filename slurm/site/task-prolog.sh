#!/bin/bash
# TaskProlog: what it prints as `export NAME=VALUE` is in the environment of each task.
#
#   TaskProlog=/opt/rpd/share/rpd/slurm/site/task-prolog.sh        in slurm.conf
#
# Gives rpd-collect the scratch folder of the job where the site makes one, unless the user has said another.
if [ -z "${RPD_SCRATCH:-}" ] && [ -n "${SLURM_TMPDIR:-}" ] && [ -d "$SLURM_TMPDIR" ]; then
    echo "export RPD_SCRATCH=$SLURM_TMPDIR"
fi
exit 0
