#!/bin/bash
# Epilog: removes what rpd-collect left on this node, of jobs that are gone.
#
#   Epilog=/opt/rpd/share/rpd/slurm/site/epilog.sh        in slurm.conf
#
# slurmd starts this as root after each job. It touches folders rpd-scratch-* in the scratch folder alone, as their owner,
# never through a link, and only those that nobody uses and that were not written to for RPD_SITE_AGE minutes. It always
# succeeds: an epilog that fails drains the node.
trap 'exit 0' EXIT
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 0
RPD_SITE_SCRATCH=/tmp
RPD_SITE_AGE=60
# shellcheck source=/dev/null
if [ -r "$here/rpd-site.conf" ]; then
    set +u
    . "$here/rpd-site.conf"
    set -u
fi

# Only root can become others.
if [ "$(id -u)" = 0 ]; then
    timeout --kill-after=5 30 "$here/clean-scratch.sh" "${RPD_SITE_SCRATCH:-/tmp}" "${RPD_SITE_AGE:-60}" </dev/null >/dev/null 2>&1 || true
fi
exit 0
