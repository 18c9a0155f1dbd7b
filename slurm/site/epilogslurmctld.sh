#!/bin/bash
# EpilogSlurmctld: has the runs of jobs merged that asked for it, by a small job of their owner.
#
#   EpilogSlurmctld=/opt/rpd/share/rpd/slurm/site/epilogslurmctld.sh        in slurm.conf
#
# slurmctld starts this as SlurmUser, without a PATH, after each job. It reads no file of a user: whether a merge is wanted
# is looked up by the job's owner, and so is all that the merge does. Jobs of root are left alone. It always succeeds, takes some seconds at most, and
# says what it did in the log of slurmctld's host: logger -t rpd-epilog.
#
# A job asks with `rpd-collect --ask-merge`, which leaves merge.wanted in the folder of the run. Where that is:
#   sbatch --comment=rpd-output=/scratch/me/rpd-out       else rpd-out in the working directory of the job;
#                                                         with spaces: --comment="rpd-output='/scratch/my own'"
#
# SlurmUser must be root, or may run this folder's merge-as-owner.sh as other users by sudo (docs/SITES.md).
#
# The site's rpd-site.conf beside this file may set:
#   RPD_SITE_SBATCH      options for the merge job (default: --time=30 --ntasks=1 --mem-per-cpu=2G)
#   RPD_SITE_PATH        where sbatch and srun are, in front of /usr/bin
#   SLURM_CONF           where slurm.conf is, if Slurm does not know
trap 'exit 0' EXIT
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 0
RPD_SITE_PATH=
# shellcheck source=/dev/null
if [ -r "$here/rpd-site.conf" ]; then
    set +u
    . "$here/rpd-site.conf"
    set -u
fi
# Where Slurm itself is, if that is another place.
PATH=${RPD_SITE_PATH:+$RPD_SITE_PATH:}$PATH

say() { logger -t rpd-epilog -- "$*" 2>/dev/null || true; }

job=${SLURM_JOB_ID:-} user=${SLURM_JOB_USER:-} uid=${SLURM_JOB_UID:-} gid=${SLURM_JOB_GID:-}
# Numbers have no zero in front: 00 would be root.
case $job in '' | 0* | *[!0-9]*) exit 0 ;; esac
case $uid in '' | 0* | *[!0-9]*) exit 0 ;; esac
case $gid in '' | 0?* | *[!0-9]*) exit 0 ;; esac
# A merge job asks for no other, and root's jobs are not users'.
case ${SLURM_JOB_NAME:-} in rpd-merge) exit 0 ;; esac

# slurmctld tells both.
folder=${SLURM_JOB_WORK_DIR:-}/rpd-out
comment=${SLURM_JOB_COMMENT:-}
case $comment in *rpd-output=/*)
    folder=${comment#*rpd-output=}
    folder=${folder%% *}
    ;;
*rpd-output=\'/*\'*)
    folder=${comment#*rpd-output=\'}
    folder=${folder%%\'*}
    ;;
esac
case $folder in /*) ;; *) exit 0 ;; esac

# As the job's owner, with nothing of ours: whether a merge is wanted, and the merge job.
merge=("$here/merge-as-owner.sh" "$folder" "$job")
if [ "$(id -u)" = 0 ]; then
    merge=(setpriv --reuid="$uid" --regid="$gid" --init-groups --inh-caps=-all --no-new-privs --reset-env -- "${merge[@]}")
elif [ "$(id -u)" != "$uid" ]; then
    merge=(sudo -n -u "$user" -- "${merge[@]}")
fi
# A process of another user ends itself; the time limit is for what runs before that.
if submitted=$(timeout --kill-after=5 40 "${merge[@]}" 2>&1 </dev/null); then
    if [ -n "$submitted" ]; then say "job $job of $user: merged by job $submitted"; fi
else
    say "job $job of $user: no merge job: $submitted"
fi
exit 0
