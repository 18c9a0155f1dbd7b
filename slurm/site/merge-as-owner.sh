#!/bin/bash
# Submits a merge job, if a run of a job asks for it; run as the job's owner by epilogslurmctld.sh. Prints the job's number.
#
#   merge-as-owner.sh FOLDER JOB
#
# What it runs is found by the site's rpd-site.conf and the system's folders, never by a PATH or a SLURM_CONF (which names
# plugins) from outside: sudo may start this as any user.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
folder=$1 job=$2
RPD_SITE_SBATCH='--time=30 --ntasks=1 --mem-per-cpu=2G'
RPD_SITE_PATH=
unset SLURM_CONF
# shellcheck source=/dev/null
if [ -r "$here/rpd-site.conf" ]; then
    set +u
    . "$here/rpd-site.conf"
    set -u
fi
PATH=${RPD_SITE_PATH:+$RPD_SITE_PATH:}$PATH
export PATH
if [ -n "${SLURM_CONF:-}" ]; then export SLURM_CONF; fi
# Nobody asks: that is no mistake.
timeout --kill-after=5 10 "$here/wanted.sh" "$folder" "$job" >/dev/null 2>&1 || exit 0
# Whether the user alone can make an entry of a folder, and root and the user alone can put another folder in its place.
# The bits of the group cover access lists.
is_private() {
    local above=$1 owner mode
    read -r owner mode < <(stat -c '%u %a' -- "$above") || return 1
    if [ "$owner" != "$EUID" ] || ((8#$mode & 8#022)); then return 1; fi
    while [ "$above" != / ]; do
        above=${above%/*}
        above=${above:-/}
        read -r owner mode < <(stat -c '%u %a' -- "$above") || return 1
        if [ "$owner" != "$EUID" ] && [ "$owner" != 0 ]; then return 1; fi
        if ((8#$mode & 8#022)) && ! ((8#$mode & 8#1000)); then return 1; fi
    done
}
# slurmstepd opens the log as the user, follows links, and empties the file. Where others could plant one, there is no log:
# merge.status in the folder of the run says how the merge ended.
log=/dev/null
if real=$(readlink -e -- "$folder") && is_private "$real"; then log=${real//%/%%}/rpd-merge-%j.out; fi
IFS=$' \t\n' read -ra options <<<"$RPD_SITE_SBATCH"
# The last task of an array has its number; the others have jobs of their own.
export RPD_OUTPUT=$folder RPD_EPILOG_TASK=1
exec timeout --kill-after=5 20 sbatch --parsable --job-name=rpd-merge --output="$log" --chdir=/ \
    --export="RPD_OUTPUT,RPD_EPILOG_TASK,PATH=$here/../../../../bin:$PATH" ${options[@]+"${options[@]}"} "$here/../merge.sbatch" "$job"
