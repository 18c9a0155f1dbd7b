#!/bin/bash
# Submits a merge job, if a run of a job asks for it; run as the job's owner by epilogslurmctld.sh. Prints the job's number.
#
#   merge-as-owner.sh FOLDER JOB PATH SLURM_CONF SBATCH_OPTIONS
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
folder=$1 job=$2
PATH=$3
export PATH
if [ -n "$4" ]; then export SLURM_CONF=$4; fi
# Nobody asks: that is no mistake.
timeout --kill-after=5 10 "$here/wanted.sh" "$folder" "$job" >/dev/null 2>&1 || exit 0
IFS=$' \t\n' read -ra options <<<"$5"
# The last task of an array has its number; the others have jobs of their own.
export RPD_OUTPUT=$folder RPD_EPILOG_TASK=1
exec timeout --kill-after=5 20 sbatch --parsable --job-name=rpd-merge --output="${folder//%/%%}/rpd-merge-%j.out" --chdir=/ \
    --export="RPD_OUTPUT,RPD_EPILOG_TASK,PATH=$here/../../../../bin:$PATH" ${options[@]+"${options[@]}"} "$here/../merge.sbatch" "$job"
